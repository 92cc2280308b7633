#include "moe/thread_pool.h"

#include "base/threads.h"

#include <type_traits>

namespace linkcpp::moe {

namespace {

/// Lets the threads of a pool share all CPUs, or have one each. With none known they stay where the starter is.
void place(ggml_threadpool_params& params, const std::vector<int>& cpus) {
    for (const int cpu : cpus) {
        if (cpu >= GGML_MAX_N_THREADS) return;
    }
    for (const int cpu : cpus)
        params.cpumask[cpu] = true;
    params.strict_cpu = params.n_threads > 1 && cpus.size() == static_cast<size_t>(params.n_threads);
}

}  // namespace

std::shared_ptr<ThreadPool> ThreadPool::create(ggml_backend_dev_t device, int n_threads, Idle idle) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
    const auto function = [reg](auto& pointer, const char* name) {
        pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(ggml_backend_reg_get_proc_address(reg, name));
        return pointer != nullptr;
    };
    std::shared_ptr<ThreadPool> created(new ThreadPool);
    decltype(&ggml_threadpool_new) new_pool = nullptr;
    if (!function(new_pool, "ggml_threadpool_new") || !function(created->free_pool_, "ggml_threadpool_free") ||
        !function(created->set_pool_, "ggml_backend_cpu_set_threadpool"))
        return nullptr;
    ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    if (idle == Idle::sleeps) params.poll = 0;
    const std::vector<int> cpus = usable_cpus();
    place(params, cpus);
    std::vector<int> callers;
    // ggml places the thread that creates a pool, too: so it tells which CPU is left for callers, and is undone at once.
    start_thread("lc-pool", [&] {
        created->pool_ = new_pool(&params);
        callers = usable_cpus();
    }).join();
    if (created->pool_ == nullptr) return nullptr;
    if (params.strict_cpu && callers.size() == 1) created->caller_cpu_ = callers.front();
    created->device_ = device;
    return created;
}

ThreadPool::~ThreadPool() {
    if (pool_ != nullptr) free_pool_(pool_);
}

void ThreadPool::rest() const {
    // A CPU module does not hand out ggml_threadpool_pause; but a backend pauses the pool that it exchanges for another.
    ggml_backend_t spare = ggml_backend_dev_init(device_, nullptr);
    if (spare == nullptr) return;
    set_pool_(spare, pool_);
    set_pool_(spare, nullptr);
    ggml_backend_free(spare);
}

}  // namespace linkcpp::moe
