// linkcpp credits: what a node has earned at a hub, entry by entry.

#include "cmd/commands.h"

#include "base/log.h"
#include "client/hub_api.h"
#include "cmd/find_hub.h"
#include "cmd/join_token.h"
#include "cmd/node_folder.h"

#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace linkcpp::cmd {

namespace {

constexpr const char* examples = R"(
Examples:
  linkcpp credits --hub http://hub:19000                       of the worker of this machine
  linkcpp credits --hub http://hub:19000 --backbone            what decodes on this machine have paid, and to whom
  linkcpp credits --hub http://hub:19000 --node 1f2e…          of any node
  linkcpp credits --hub http://hub:19000 --json                for programs
)";

struct Options {
    std::string hub, node, data, join_token, ca_file;
    bool json = false, backbone = false;
};

int fail(const Status& status, int code = exit_failed) {
    log_error("{}", status.message());
    return code;
}

/// The key of the worker that belongs to this hub; without one, a key of the moment, which is enough to look.
Result<SigningKey> key_of(const Options& options, const client::HubUrl& url) {
    const std::string usual = options.backbone ? default_backbone_folder(url) : default_node_folder(url);
    const std::string path = (options.data.empty() ? usual : options.data) + "/node.key";
    const bool there = access(path.c_str(), F_OK) == 0;
    if (there) return SigningKey::load_or_create(path);
    if (!options.node.empty()) return SigningKey::generate();
    return {Code::not_found, path + " is not there: no " +
                                 (options.backbone ? "backbone has asked" : "worker has joined") +
                                 " this hub from here. Give --node or --data"};
}

/// All entries, page by page. A private swarm asks who we are.
Result<client::Ledger> read_ledger(client::HubApi& api, const std::string& node) {
    client::Ledger all;
    bool registered = false;
    while (true) {
        auto page = api.ledger(node, all.entries.empty() ? 0 : all.entries.back().number);
        if (!page.ok() && page.status().code() == Code::mismatch && !registered) {
            const auto registration = api.register_node({});
            if (!registration.ok()) return registration.status();
            registered = true;
            continue;
        }
        if (!page.ok()) return page.status();
        all.balance = page->balance;
        if (page->entries.empty()) return all;
        all.entries.insert(all.entries.end(), page->entries.begin(), page->entries.end());
    }
}

void print_text(const std::string& node, const client::Ledger& ledger) {
    for (const client::LedgerEntry& entry : ledger.entries) {
        const bool earned = entry.to == node;
        fmt::print("{:%Y-%m-%d %H:%M}  {:>+12}  {} {}  {}\n", fmt::gmtime(static_cast<std::time_t>(entry.at)),
                   earned ? entry.amount : -entry.amount, earned ? "from" : "to", earned ? entry.from : entry.to,
                   entry.reason);
    }
    fmt::print("{} has {} credits\n", node, ledger.balance);
}

void print_json(const std::string& node, const client::Ledger& ledger) {
    nlohmann::json entries = nlohmann::json::array();
    for (const client::LedgerEntry& entry : ledger.entries) {
        entries.push_back({{"number", entry.number},
                           {"id", entry.id},
                           {"from", entry.from},
                           {"to", entry.to},
                           {"amount", entry.amount},
                           {"reason", entry.reason},
                           {"at", entry.at}});
    }
    const nlohmann::json all = {{"node", node}, {"balance", ledger.balance}, {"entries", entries}};
    fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

int run(const Options& options) {
    const auto url = find_hub(options.hub);
    if (!url.ok()) return fail(url.status(), exit_usage);
    std::optional<Bytes> join_token;
    if (!options.join_token.empty()) {
        Result<Bytes> token = read_join_token(options.join_token);
        if (!token.ok()) return fail(token.status(), exit_usage);
        join_token = std::move(*token);
    }
    const Result<SigningKey> key = key_of(options, *url);
    if (!key.ok()) return fail(key.status());
    client::HubApi api(*url, {.ca_file = options.ca_file}, *key, join_token);
    const std::string node = options.node.empty() ? key->public_key().fingerprint() : options.node;
    const Result<client::Ledger> ledger = read_ledger(api, node);
    if (!ledger.ok()) return fail(ledger.status());
    (options.json ? print_json : print_text)(node, *ledger);
    return 0;
}

}  // namespace

void add_credits(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<Options>();
    CLI::App* credits = app.add_subcommand("credits", "Tell what a node has earned and spent at a hub");
    credits->footer(examples);
    credits->add_option("--hub", options->hub, "The hub; auto: the one on the local network")
        ->required()
        ->type_name("http[s]://HOST:PORT|auto");
    credits->add_option("--node", options->node, "A node's id (default: this machine's worker)")->type_name("ID");
    credits->add_flag("--backbone", options->backbone, "This machine's backbone instead of its worker");
    credits->add_option("--data", options->data, "The node's folder (default: the user's data folder)")
        ->type_name("FOLDER");
    credits->add_option("--join-token", options->join_token, "The token of a private swarm")->type_name("FILE");
    credits->add_option("--ca", options->ca_file, "The authority that the hub's certificate is checked with, PEM")
        ->type_name("FILE");
    credits->add_flag("--json", options->json, "Print JSON");
    credits->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace linkcpp::cmd
