#include "worker/slice_shelf.h"

#include "base/log.h"
#include "base/threads.h"

#include <cstdio>
#include <filesystem>
#include <set>

namespace linkcpp::worker {

namespace {

namespace fs = std::filesystem;
using client::Segment;

std::string file_name(const Segment& what) {
    return fmt::format("layers-{}-{}-experts-{}-{}.gguf", what.layer_begin, what.layer_end, what.expert_begin,
                       what.expert_end);
}

/// Names come from the hub and become names of folders here.
bool is_safe(const std::string& model) {
    return !model.empty() && model.size() <= 200 && model.front() != '.' && model.find('/') == std::string::npos &&
           model.find('\0') == std::string::npos;
}

}  // namespace

std::optional<Segment> segment_of_file(const std::string& model, const std::string& name) {
    Segment what{model, 0, 0, 0, 0};
    if (std::sscanf(name.c_str(), "layers-%u-%u-experts-%u-%u.gguf", &what.layer_begin, &what.layer_end,
                    &what.expert_begin, &what.expert_end) != 4 ||
        file_name(what) != name)
        return std::nullopt;
    return what;
}

SliceShelf::SliceShelf(std::string folder, Serving& serving, std::shared_ptr<moe::Device> device,
                       std::string advertised, FetchSlice fetch_slice)
    : folder_(std::move(folder)), serving_(serving), device_(std::move(device)), advertised_(std::move(advertised)),
      fetch_slice_(std::move(fetch_slice)) {}

SliceShelf::~SliceShelf() { stop_fetching(); }

std::string SliceShelf::path_of(const Segment& what) const {
    return folder_ + "/slices/" + what.model + "/" + file_name(what);
}

/// Opens a slice, and says what it is and takes. Its slabs are not read: serve() checks each that it loads.
Result<SlicePort::Kept> SliceShelf::look_at(const std::string& path, const Segment& what) const {
    const Result<moe::SliceFile> file = moe::SliceFile::open(path);
    if (!file.ok()) return file.status();
    const moe::SliceInfo& info = file->info();
    const Segment found{what.model, static_cast<uint32_t>(info.layer_begin), static_cast<uint32_t>(info.layer_end),
                        static_cast<uint32_t>(info.expert_begin), static_cast<uint32_t>(info.expert_end)};
    if (found != what) return {Code::mismatch, path + " holds " + found.str()};
    const Result<uint64_t> bytes = moe::Engine::bytes_needed(*device_, file->tensors());
    if (!bytes.ok()) return bytes.status().in(path);
    std::set<int> layers;
    for (const moe::ExpertTensor& tensor : file->tensors())
        layers.insert(tensor.name.layer);
    Kept kept;
    kept.what = what;
    kept.bytes = *bytes;
    kept.n_experts = layers.size() * (what.expert_end - what.expert_begin);
    kept.fingerprint = info.model_fingerprint.hex();
    return kept;
}

std::vector<SlicePort::Kept> SliceShelf::kept() {
    std::vector<Kept> slices;
    std::error_code ignored;
    for (const auto& model : fs::directory_iterator(folder_ + "/slices", ignored)) {
        for (const auto& file : fs::directory_iterator(model.path(), ignored)) {
            const auto what = segment_of_file(model.path().filename(), file.path().filename());
            if (!what) continue;
            Result<Kept> slice = look_at(file.path(), *what);
            if (slice.ok()) {
                slices.push_back(std::move(*slice));
            } else {
                const bool worthless = slice.status().code() == Code::corrupt ||
                                       slice.status().code() == Code::mismatch ||
                                       slice.status().code() == Code::invalid_argument;
                log_warning("{}; it is {}", slice.status().message(), worthless ? "removed" : "left alone");
                if (worthless) fs::remove(file.path(), ignored);
            }
        }
    }
    std::sort(slices.begin(), slices.end(), [](const Kept& a, const Kept& b) { return a.what < b.what; });
    return slices;
}

/// One download is under way at a time, so only one file's beginning is worth its place on the disk.
void SliceShelf::remove_partial_files_but(const std::string& path) const {
    std::error_code ignored;
    for (const auto& model : fs::directory_iterator(folder_ + "/slices", ignored)) {
        for (const auto& file : fs::directory_iterator(model.path(), ignored)) {
            const std::string name = file.path().string();
            const std::string whole = name.substr(0, name.rfind(".part"));
            if (whole != name && whole != path && segment_of_file(model.path().filename(), fs::path(whole).filename()))
                fs::remove(file.path(), ignored);
        }
    }
}

void SliceShelf::fetch(const client::Lease& lease) {
    stop_fetching();
    cancelled_ = false;
    arrived_ = 0;
    ended_.reset();
    thread_ = start_thread("lc-fetch", [this, lease] { run(lease); });
}

void SliceShelf::run(const client::Lease& lease) {
    Result<Kept> result(Code::invalid_argument, "the hub calls a model \"" + lease.what.model + "\"");
    if (is_safe(lease.what.model)) {
        const std::string path = path_of(lease.what);
        std::error_code error;
        fs::create_directories(fs::path(path).parent_path(), error);
        remove_partial_files_but(path);
        const Status fetched =
            error ? Status(Code::io, path + ": " + error.message()) : fetch_slice_(lease, path, arrived_, cancelled_);
        result = fetched.ok() ? look_at(path, lease.what) : Result<Kept>(fetched);
        if (fetched.ok() && !result.ok()) fs::remove(path, error);
    }
    const std::lock_guard lock(mutex_);
    ended_.emplace(std::move(result));
}

SlicePort::Fetching SliceShelf::fetching() {
    const std::lock_guard lock(mutex_);
    return {arrived_, ended_};
}

void SliceShelf::stop_fetching() {
    cancelled_ = true;
    if (thread_.joinable()) thread_.join();
}

Status SliceShelf::serve(const std::vector<Segment>& what) {
    std::vector<std::string> paths;
    for (const Segment& one : what)
        paths.push_back(path_of(one));
    return serving_.replace(paths);
}

void SliceShelf::forget(const Segment& what) {
    std::error_code error;
    fs::remove(path_of(what), error);
    if (error) log_warning("{} cannot be removed: {}", path_of(what), error.message());
}

std::string SliceShelf::address() {
    if (!serving_.serving()) return "";
    if (!advertised_.empty()) return advertised_;
    // A wildcard is no address: the hub sees where we come from.
    const net::Address& address = serving_.address();
    const bool any = address.host == "0.0.0.0" || address.host == "::";
    return any ? fmt::format(":{}", address.port) : address.str();
}

}  // namespace linkcpp::worker
