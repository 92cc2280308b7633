#pragma once
// Computes expert programs with ggml on weights that it loaded from a slice (or from a model's own file). Results are
// bit-identical with llama.cpp's on the same CPU backend, because it uses the same operation (MUL_MAT_ID) on weights in
// the same buffer type (docs/ARCHITECTURE.md, "Exactness"). Pure: no state survives a call but caches.

#include "base/status.h"
#include "moe/program.h"
#include "moe/slice_file.h"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct ggml_backend;
struct ggml_backend_device;

namespace linkcpp::moe {

/// Loads ggml's backend modules from the program's folder once per process. Any thread.
void load_ggml_backends();
/// From now on ggml tells about errors only, not what it loads and repacks. Before anything of ggml runs.
void silence_ggml();

struct DeviceInfo {
    std::string name, description;
    uint64_t memory_free = 0, memory_total = 0;
};
std::vector<DeviceInfo> list_devices();

/// What decides the bits of a result: backend, instruction set features, whether weights are repacked.
/// Equal strings: bit-equal results. E.g. "CPU:AVX2,AVX512,…;repack".
Result<std::string> numeric_class(const std::string& device);

/// One ggml device with its threads. compute() of engines that share a device takes turns (a lock inside).
class Device {
  public:
    /// `name`: as list_devices() gives it, "" = CPU. n_threads <= 0: the number of cores.
    static Result<std::shared_ptr<Device>> open(const std::string& name, int n_threads);
    virtual ~Device() = default;
    virtual const std::string& numeric_class() const = 0;
    virtual int n_threads() const = 0;
};

/// The expert tensors of some layers, in the device's memory. Thread-safe: compute() may be called from several threads.
class Engine {
  public:
    /// Copies `tensors` (of any number of layers, all with the same experts) into the buffer types that llama.cpp would
    /// choose, with all threads of the device. The spans are read during the call only, or, when `read` is given, not at
    /// all: then it is asked for every slab, also of tensors that are not kept here. Errors: exhausted (memory), unsupported
    /// (a type that the device cannot compute), corrupt, and those of `read`.
    static Result<std::unique_ptr<Engine>> load(std::shared_ptr<Device> device,
                                                const std::vector<ExpertTensor>& tensors, const Progress& progress = {},
                                                const ReadSlab& read = {});
    /// Device bytes that load() would take, repacked copies included. `peak`: with the largest staging copy on top.
    static Result<uint64_t> bytes_needed(Device& device, const std::vector<ExpertTensor>& tensors);

    virtual ~Engine() = default;

    virtual std::vector<int> layers() const = 0;
    virtual LayerShapes shapes(int layer) const = 0;
    virtual int n_expert() const = 0;    ///< experts held (padding not counted)
    virtual uint64_t bytes() const = 0;  ///< device memory held by weights

    /// Takes what was computed from where it lies, y: [n_out, n_pairs], which is there during the call only. The device
    /// computes nothing else meanwhile, so it should only copy or sum.
    using TakeRows = std::function<void(std::span<const float> y)>;

    /// y[:, p] = program(x[:, x_row[p]]) with the weights of expert[p], handed to `take`.
    /// x: [n_in, n_x]; x_row, expert: [n_pairs]. `expert` counts from the first expert held.
    /// Errors: invalid_argument (indices or widths that do not fit, a program that does not), exhausted.
    virtual Status compute_rows(int layer, const Program& program, std::span<const float> x,
                                std::span<const uint32_t> x_row, std::span<const uint32_t> expert,
                                const TakeRows& take) = 0;
    /// The same, copied to y.
    Status compute(int layer, const Program& program, std::span<const float> x, std::span<const uint32_t> x_row,
                   std::span<const uint32_t> expert, std::span<float> y);
};

/// Bytes that compute_rows() takes for a program's values, the rows that it hands over among them. Indices fit.
uint64_t bytes_to_compute(const ProgramShape& shape, std::span<const uint32_t> x_row, std::span<const uint32_t> expert,
                          size_t n_x, size_t n_expert);

/// out[:, g] = sum over the pairs p of group g, in pair order, of weight[p] * y[:, p] (or of y[:, p] when `weight` is
/// empty). One rounding per multiplication and per addition, as ggml's MUL and ADD do it: bit-identical with the graph.
/// y: [n_out, n_pairs]; group, weight: [n_pairs], groups not decreasing; out: [n_out, n_groups]. A group of one pair
/// is that pair's (weighted) row.
void weighted_sums(std::span<const float> y, std::span<const float> weight, std::span<const uint32_t> group,
                   size_t n_out, std::span<float> out);

}  // namespace linkcpp::moe
