#include "moe/slab_loader.h"

#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace linkcpp::moe {

namespace {

/// A thread is worth starting for so many bytes.
constexpr uint64_t bytes_per_thread = 8 << 20;

enum class Writing {
    ranges,  ///< any range of bytes, as they are
    slabs,   ///< ggml's repacked layout: rows of one expert are interleaved, experts follow each other
    whole    ///< a layout that is not known here
};

Writing writing(const GgmlDevice& device, const ggml_tensor* tensor) {
    ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(tensor->buffer);
    if (type == ggml_backend_dev_buffer_type(device.device())) return Writing::ranges;
    return std::strcmp(ggml_backend_buft_name(type), "CPU_REPACK") == 0 && tensor->ne[2] > 1 ? Writing::slabs
                                                                                             : Writing::whole;
}

/// ggml repacks whole tensors only: this is the tensor of one expert inside of the one that holds all.
void set_repacked(const ggml_tensor* tensor, size_t slab, ByteSpan data) {
    ggml_tensor expert = *tensor;
    expert.ne[2] = 1;
    expert.nb[3] = expert.nb[2];
    expert.data = static_cast<uint8_t*>(tensor->data) + slab * tensor->nb[2];
    ggml_backend_tensor_set(&expert, data.data(), 0, data.size());
}

}  // namespace

void SlabLoader::add(ggml_tensor* tensor, const ExpertTensor& source) {
    const size_t n =
        tensor != nullptr ? ggml_nbytes(tensor) / source.slab_bytes : source.data.size() / source.slab_bytes;
    const size_t step = tensor != nullptr && writing(device_, tensor) == Writing::whole ? n : 1;
    for (size_t begin = 0; begin < n; begin += step)
        jobs_.push_back({tensor, &source, begin, begin + step});
    total_ += n * source.slab_bytes;
}

Result<ByteSpan> SlabLoader::read(const Job& job, Bytes& staging) const {
    const size_t slab_bytes = job.source->slab_bytes, n_slabs = job.source->data.size() / slab_bytes;
    if (!read_ && job.end <= n_slabs)
        return job.source->data.subspan(job.begin * slab_bytes, (job.end - job.begin) * slab_bytes);
    staging.resize((job.end - job.begin) * slab_bytes);
    for (size_t i = job.begin; i < job.end; ++i) {
        const std::span<uint8_t> out(staging.data() + (i - job.begin) * slab_bytes, slab_bytes);
        const size_t slab = i % n_slabs;
        if (read_) {
            LINKCPP_TRY(read_(*job.source, slab, out));
        } else {
            std::copy_n(job.source->data.data() + slab * slab_bytes, slab_bytes, out.data());
        }
    }
    return ByteSpan(staging);
}

Status SlabLoader::run(const Job& job, Bytes& staging) const {
    const auto data = read(job, staging);
    if (!data.ok()) return data.status();
    if (job.tensor == nullptr) return {};
    if (writing(device_, job.tensor) == Writing::slabs) {
        set_repacked(job.tensor, job.begin, *data);
    } else {
        ggml_backend_tensor_set(job.tensor, data->data(), job.begin * job.source->slab_bytes, data->size());
    }
    return {};
}

Status SlabLoader::run() {
    std::atomic<size_t> next = 0;
    std::mutex mutex;
    uint64_t done = 0;  // protected by mutex, as `first_error` is
    Status first_error;
    const auto work = [&] {
        Bytes staging;
        for (size_t i = next++; i < jobs_.size(); i = next++) {
            Status status = run(jobs_[i], staging);
            const std::lock_guard lock(mutex);
            if (!status.ok()) {
                if (first_error.ok()) first_error = std::move(status);
                next = jobs_.size();
            }
            done += (jobs_[i].end - jobs_[i].begin) * jobs_[i].source->slab_bytes;
            if (progress_ && first_error.ok()) progress_(done, total_);
        }
    };
    // Only a CPU's memory is written by any thread.
    const bool is_cpu = ggml_backend_dev_type(device_.device()) == GGML_BACKEND_DEVICE_TYPE_CPU;
    const uint64_t worth = is_cpu ? 1 + total_ / bytes_per_thread : 1;
    std::vector<std::thread> helpers;
    for (uint64_t i = 1; i < std::min<uint64_t>(worth, static_cast<uint64_t>(device_.n_threads())); ++i)
        helpers.push_back(start_thread("lc-load", work));
    work();
    for (std::thread& helper : helpers)
        helper.join();
    return first_error;
}

}  // namespace linkcpp::moe
