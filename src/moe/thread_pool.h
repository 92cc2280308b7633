#pragma once
// The threads that compute ggml graphs on the CPU: one pool for life, because ggml makes new threads for every graph
// without one, and a CPU for each of them when there are as many as this process may use. The thread that calls ggml is one
// of them: it does so in a StayOnCpu of caller_cpu(). For one caller at a time, which need not be the same one.

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <memory>

namespace linkcpp::moe {

class ThreadPool {
  public:
    enum class Idle { sleeps, looks_for_work };

    /// nullptr if `device` has no use for one (GPUs). With Idle::looks_for_work threads that have nothing to do look
    /// busily for the next graph for some tenths of a second, as llama.cpp's do; else they sleep at once, which a machine
    /// where somebody else computes meanwhile is grateful for.
    static std::shared_ptr<ThreadPool> create(ggml_backend_dev_t device, int n_threads, Idle idle);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    ggml_threadpool_t get() const { return pool_; }
    int caller_cpu() const { return caller_cpu_; }  ///< -1: any
    /// Graphs of `backend`, one of the device's, are computed by this pool, which must outlive it.
    void serve(ggml_backend_t backend) const { set_pool_(backend, pool_); }
    /// Until the next graph its threads sleep.
    void rest() const;

  private:
    ThreadPool() = default;

    ggml_backend_dev_t device_ = nullptr;
    ggml_threadpool_t pool_ = nullptr;
    int caller_cpu_ = -1;
    decltype(&ggml_threadpool_free) free_pool_ = nullptr;
    decltype(&ggml_backend_cpu_set_threadpool) set_pool_ = nullptr;
};

}  // namespace linkcpp::moe
