// `linkcpp serve` and the preload library: stock tools, backbone files, holes that stay holes.

#include "e2e/http_server.h"
#include "e2e/swarm.h"

#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>

namespace linkcpp::test {
namespace {

/// Pages of the file's holes that are in memory.
size_t pages_of_holes_in_memory(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY);
    const off_t size = lseek(fd, 0, SEEK_END);
    const auto page = static_cast<off_t>(sysconf(_SC_PAGESIZE));
    const auto n_pages = static_cast<size_t>((size + page - 1) / page);
    void* mapped = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
    std::vector<unsigned char> in_memory(n_pages);
    EXPECT_EQ(mincore(mapped, static_cast<size_t>(size), in_memory.data()), 0);
    size_t count = 0, holes = 0;
    for (off_t hole = lseek(fd, 0, SEEK_HOLE); hole >= 0 && hole < size;) {
        off_t data = lseek(fd, hole, SEEK_DATA);
        if (data < 0) data = size;
        for (off_t at = (hole + page - 1) / page * page; at + page <= data; at += page) {
            count += in_memory[static_cast<size_t>(at / page)] & 1;
            ++holes;
        }
        hole = lseek(fd, data, SEEK_HOLE);
    }
    EXPECT_GT(holes, 100u) << "the file has no holes to speak of";
    munmap(mapped, static_cast<size_t>(size));
    close(fd);
    return count;
}

class Serve : public Swarm {
  protected:
    static size_t count(const std::string& path) { return pages_of_holes_in_memory(path); }
};

TEST_F(Serve, ThePreloadLibraryKeepsHolesOutOfMemoryAndTheTextTheSame) {
    start_worker({slice("", "")});
    Environment environment = {{"GGML_BACKEND_PATH", program("libggml-linkcpp.so")},
                               {"LINKCPP_WORKERS", all_workers()}};
    const auto complete = [&](const std::string& model, const Environment& with) {
        std::string longest;  // it loses the tail of its text once in a hundred runs
        for (int i = 0; i < 2; ++i) {
            const Finished done = run({program("llama-completion"), "-m", model, "-p", "The capital of France is", "-n",
                                       "24", "--temp", "0", "-no-cnv", "--no-display-prompt", "-t", "1", "-c", "128"},
                                      with);
            EXPECT_EQ(done.exit_code, 0) << done.err;
            if (done.out.size() > longest.size()) longest = done.out;
        }
        return longest;
    };
    const std::string expected = complete(capitals_model(), {});
    const std::string sparse = backbone(), control = backbone();
    Environment preloaded = environment;
    preloaded["LD_PRELOAD"] = program("liblinkcpp-preload.so");
    EXPECT_EQ(complete(sparse, preloaded), expected);
    EXPECT_EQ(count(sparse), 0u);
    // The control: this is what the library prevents.
    EXPECT_EQ(complete(control, environment), expected);
    EXPECT_GT(count(control), 100u);
}

TEST_F(Serve, RunsTheServerWithTheWorkersAndPassesItsOptionsOn) {
    start_worker({slice("", "")});
    const std::string sparse = backbone(), stats = folder / "stats.jsonl";
    HttpServer server({program("linkcpp"), "serve", "-m", sparse, "--workers", all_workers(), "-np", "1", "-c", "256",
                       "-t", "1", "--stats", stats, "--fallback", "none", "--alias", "named-by-an-unknown-option"},
                      {});
    ASSERT_NE(server.url, "");
    const auto answer = server.ask({{"prompt", "The capital of France is"}, {"n_predict", 16}, {"temperature", 0}});
    EXPECT_NE(answer["content"].get<std::string>().find("Paris"), std::string::npos) << answer.dump();
    EXPECT_EQ(answer["model"], "named-by-an-unknown-option");
    EXPECT_GT(std::filesystem::file_size(stats), 0u);
    EXPECT_EQ(count(sparse), 0u) << "the preload library is used by itself";
    EXPECT_EQ(server.stop(SIGTERM).exit_code, 0) << "the signal reached the server, and its exit code us";
}

TEST_F(Serve, TheExitCodeIsTheServers) {
    start_worker({slice("", "")});
    const std::vector<std::string> command = {program("linkcpp"), "serve",     "-m",
                                              capitals_model(),   "--workers", all_workers()};
    auto bad = command;
    bad.push_back("--no-such-option-of-llama-server");
    const Finished refused = run(bad);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("--no-such-option-of-llama-server"), std::string::npos) << refused.err;
    auto help = command;
    help.insert(help.end(), {"--", "--help"});
    const Finished of_the_server = run(help);
    EXPECT_EQ(of_the_server.exit_code, 0);
    EXPECT_NE(of_the_server.out.find("--spec-draft-model"), std::string::npos);
}

TEST_F(Serve, SaysWhatIsMissing) {
    const std::vector<std::string> command = {program("linkcpp"), "serve",     "-m",
                                              capitals_model(),   "--workers", "127.0.0.1:1"};
    auto other = command;
    other.insert(other.end(), {"--llama-server", "/nowhere/llama-server"});
    const Finished gone = run(other);
    EXPECT_EQ(gone.exit_code, 1);
    EXPECT_NE(gone.err.find("/nowhere/llama-server"), std::string::npos) << gone.err;

    const Finished nobody = run({program("linkcpp"), "serve", "-m", capitals_model()});
    EXPECT_EQ(nobody.exit_code, 2);
    EXPECT_NE(nobody.err.find("--workers"), std::string::npos) << nobody.err;

    // A copy of the program alone: nothing lies beside it.
    const std::string alone = folder / "linkcpp";
    std::filesystem::copy_file(program("linkcpp"), alone);
    auto moved = command;
    moved[0] = alone;
    const Finished lonely = run(moved, {{"LD_LIBRARY_PATH", LINKCPP_BIN_DIR}});
    EXPECT_EQ(lonely.exit_code, 1);
    EXPECT_NE(lonely.err.find("libggml-linkcpp.so"), std::string::npos) << lonely.err;
    EXPECT_NE(lonely.err.find("make install"), std::string::npos) << lonely.err;
}

/// Small things of the command lines.
TEST_F(Serve, AnUnknownCommandIsNamed) {
    const Finished done = run({program("linkcpp"), "bogus", "--json"});
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_NE(done.err.find("'bogus'"), std::string::npos) << done.err;
}

TEST_F(Serve, AWorkerRefusesANegativeLimitAndIsQuietWhenAsked) {
    const std::string all = slice("", "");
    for (const char* limit : {"-1", "2 parsecs"}) {
        const Finished done = run({program("linkcpp-expert-worker"), "--serve", "127.0.0.1:0", "--model", all,
                                   std::string("--max-memory=") + limit});
        EXPECT_EQ(done.exit_code, 2) << limit;
        EXPECT_NE(done.err.find("not a size"), std::string::npos) << done.err;
    }
    Process worker(
        {program("linkcpp-expert-worker"), "--serve", "127.0.0.1:0", "--model", all, "--max-memory", "0", "--quiet"});
    ASSERT_TRUE(worker.wait_for_line("serving on "));
    worker.signal(SIGTERM);
    const Finished done = worker.wait();
    EXPECT_EQ(done.exit_code, 0);
    EXPECT_EQ(done.err, "");
}

}  // namespace
}  // namespace linkcpp::test
