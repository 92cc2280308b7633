#include "worker/serving.h"

#include "worker/self_test.h"

#include <algorithm>
#include <future>

namespace linkcpp::worker {

Serving::Serving(net::TcpNetwork& network, std::shared_ptr<moe::Device> device, net::Address address,
                 ServerSettings settings)
    : network_(network), device_(std::move(device)), address_(std::move(address)), settings_(std::move(settings)),
      computer_(network.loop()) {}

Serving::~Serving() { stop(); }

Result<std::unique_ptr<HeldSlice>> Serving::load(const std::string& path) const {
    Result<moe::SliceFile> file = moe::SliceFile::open(path);
    if (!file.ok()) return file.status();
    auto slice = std::make_unique<HeldSlice>(HeldSlice{std::move(*file), nullptr});
    LINKCPP_TRY(load_engine(*slice, device_));
    LINKCPP_TRY(self_test(*slice->engine).in(path));
    return slice;
}

Status Serving::replace(const std::vector<std::string>& paths) {
    const auto wanted = [&](const std::unique_ptr<HeldSlice>& slice) {
        return std::find(paths.begin(), paths.end(), slice->file.path()) != paths.end();
    };
    // What goes leaves first: memory may not have room for both. What stays is served again at once.
    if (!std::all_of(slices_.begin(), slices_.end(), wanted)) {
        stop();
        std::erase_if(slices_, [&](const auto& slice) { return !wanted(slice); });
        LINKCPP_TRY(start());
    }
    std::vector<std::unique_ptr<HeldSlice>> fresh;
    for (const std::string& path : paths) {
        const bool known =
            std::any_of(slices_.begin(), slices_.end(), [&](const auto& slice) { return slice->file.path() == path; });
        if (known) continue;
        Result<std::unique_ptr<HeldSlice>> slice = load(path);
        if (!slice.ok()) return slice.status();
        fresh.push_back(std::move(*slice));
    }
    if (fresh.empty()) return {};
    stop();
    for (auto& slice : fresh)
        slices_.push_back(std::move(slice));
    return start();
}

Status Serving::start() {
    if (slices_.empty()) return {};
    served_.clear();
    for (const auto& slice : slices_)
        served_.push_back(served_slice(*slice));
    Status listening;
    network_.loop().run([&] {
        server_ = std::make_unique<Server>(network_, computer_, served_, settings_);
        listening = server_->listen(address_);
        if (listening.ok()) {
            address_.port = server_->address().port;
        } else {
            server_.reset();
        }
    });
    return listening;
}

void Serving::stop() {
    if (!server_) return;
    std::promise<void> drained;
    network_.loop().post([&] { server_->drain([&] { drained.set_value(); }); });
    drained.get_future().wait();
    network_.loop().run([&] { server_.reset(); });
}

uint32_t Serving::pairs_waiting() {
    uint32_t pairs = 0;
    if (server_) network_.loop().run([&] { pairs = server_->pairs_waiting(); });
    return pairs;
}

}  // namespace linkcpp::worker
