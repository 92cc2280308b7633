#include "worker/request_check.h"

#include "worker/job_runner.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::worker {

namespace {

using wire::Refuse;
using wire::RefuseCode;

constexpr uint64_t max_tokens = 4096;
/// Of programs in one session: some thousand small ones, which no model needs.
constexpr uint64_t max_program_memory = 1u << 20;

/// Why a program does not fit, as the other end should take it: a bug of its own, or something this worker lacks.
RefuseCode code_for(const Status& status) {
    return status.code() == Code::corrupt || status.code() == Code::invalid_argument || status.code() == Code::exhausted
               ? RefuseCode::malformed
               : RefuseCode::unsupported;
}

}  // namespace

Caps caps_for(const std::vector<ServedSlice>& slices) {
    uint64_t n_in = 1, n_used = 8;
    for (const ServedSlice& slice : slices) {
        n_used = std::max<uint64_t>(n_used, static_cast<uint64_t>(std::max(slice.n_expert_used, 0)));
        for (int layer : slice.engine->layers()) {
            for (const auto& matrix : slice.engine->shapes(layer).matrix) {
                if (matrix.present) n_in = std::max(n_in, static_cast<uint64_t>(matrix.n_in));
            }
        }
    }
    Caps caps;
    caps.max_pairs = max_tokens * n_used;
    const uint64_t bytes = wire::compute_payload_bytes(wire::Output::sums, max_tokens, n_in, caps.max_pairs, true);
    caps.max_payload = static_cast<uint32_t>(std::clamp<uint64_t>(bytes, 1u << 20, wire::max_payload_limit));
    return caps;
}

const ServedSlice* RequestCheck::find(const wire::SliceId& id) const {
    auto found =
        std::find_if(slices_.begin(), slices_.end(), [&](const auto& slice) { return slice.offer.slice == id; });
    return found == slices_.end() ? nullptr : &*found;
}

std::optional<Refuse> RequestCheck::add_program(const wire::FrameHeader& header, const wire::ProgramFrame& frame) {
    const auto key = std::make_pair(header.slice, frame.program);
    forget(key);
    const ServedSlice* slice = find(header.slice);
    if (!slice) return Refuse{RefuseCode::unknown_slice, "this worker does not hold that slice"};
    Result<moe::Program> program = moe::decode_program(frame.code);
    if (!program.ok()) return Refuse{code_for(program.status()), program.status().message()};

    Entry entry;
    for (int held : slice->engine->layers()) {
        const auto layer = static_cast<uint32_t>(held);
        if (layer < frame.layer_begin || layer >= frame.layer_end) continue;
        Result<moe::ProgramShape> shape = moe::check_program(*program, slice->engine->shapes(held));
        if (!shape.ok()) {
            return Refuse{code_for(shape.status()), fmt::format("layer {}: {}", held, shape.status().message())};
        }
        entry.layers.emplace(layer, *shape);
    }
    if (entry.layers.empty()) {
        return Refuse{RefuseCode::unknown_slice, fmt::format("the slice has no experts of layers {} to {}",
                                                             frame.layer_begin, frame.layer_end - 1)};
    }
    entry.program = std::make_shared<const moe::Program>(std::move(*program));
    if (held_bytes_ + entry.bytes() > max_program_memory) {
        return Refuse{RefuseCode::busy, fmt::format("{} programs in one session are too many", programs_.size() + 1)};
    }
    held_bytes_ += entry.bytes();
    programs_.emplace(key, std::move(entry));
    return std::nullopt;
}

uint64_t RequestCheck::Entry::bytes() const {
    constexpr uint64_t program_node = 256, layer_node = 96;  // with what containers and the allocator add
    return program_node + program->steps.size() * sizeof(moe::Step) + layers.size() * layer_node;
}

void RequestCheck::forget(const std::pair<wire::SliceId, uint32_t>& key) {
    const auto found = programs_.find(key);
    if (found == programs_.end()) return;
    held_bytes_ -= found->second.bytes();
    programs_.erase(found);
}

std::optional<Refuse> RequestCheck::check_compute(const wire::FrameHeader& header, const wire::Compute& compute,
                                                  uint32_t peer_max_payload, Accepted& accepted) const {
    const ServedSlice* slice = find(header.slice);
    if (!slice) return Refuse{RefuseCode::unknown_slice, "this worker does not hold that slice"};
    if (header.layer < slice->offer.layer_begin || header.layer >= slice->offer.layer_end) {
        return Refuse{RefuseCode::unknown_slice,
                      fmt::format("layer {} is not in the slice, which has {} to {}", header.layer,
                                  slice->offer.layer_begin, slice->offer.layer_end - 1)};
    }
    const auto entry = programs_.find({header.slice, compute.program});
    if (entry == programs_.end() || !entry->second.layers.contains(header.layer)) {
        return Refuse{RefuseCode::unknown_program,
                      fmt::format("no program {} for layer {} of that slice", compute.program, header.layer)};
    }
    const moe::ProgramShape shape = entry->second.layers.at(header.layer);
    if (compute.n_in != shape.n_in) {
        return Refuse{RefuseCode::malformed,
                      fmt::format("activation rows of {} numbers, the program takes {}", compute.n_in, shape.n_in)};
    }
    const auto n_expert = static_cast<uint32_t>(slice->engine->n_expert());
    std::vector<size_t> n_pairs_of(n_expert);
    for (uint32_t expert : compute.expert) {
        if (expert >= n_expert) {
            return Refuse{RefuseCode::malformed, fmt::format("expert {} of {}", expert, n_expert)};
        }
        ++n_pairs_of[expert];
    }
    if (compute.expert.size() > caps_.max_pairs) {
        return Refuse{RefuseCode::unsupported,
                      fmt::format("{} pairs at once, at most {}", compute.expert.size(), caps_.max_pairs)};
    }
    if (wire::result_payload_bytes(static_cast<uint64_t>(shape.n_out), 1) > peer_max_payload) {
        return Refuse{RefuseCode::unsupported,
                      fmt::format("a result row does not fit into {} bytes, your cap", peer_max_payload)};
    }
    accepted = {slice, entry->second.program, static_cast<uint32_t>(shape.n_out), false, 0, 0};
    const uint64_t n_pairs = compute.expert.size();
    const uint64_t n_in_part = std::min(n_pairs, part_pairs + *std::max_element(n_pairs_of.begin(), n_pairs_of.end()));
    accepted.scratch_bytes = n_in_part * static_cast<uint64_t>(shape.n_in + shape.n_live) * sizeof(float);
    if (n_pairs <= part_pairs) return std::nullopt;
    if (compute.output == wire::Output::sums)
        accepted.rows_bytes = n_pairs * static_cast<uint64_t>(shape.n_out) * sizeof(float);
    const uint64_t at_once = moe::bytes_to_compute(shape, compute.x_row, compute.expert, compute.n_x, n_expert);
    accepted.at_once = at_once <= std::max(accepted.scratch_bytes + accepted.rows_bytes, max_bytes_at_once_);
    if (accepted.at_once && at_once > accepted.rows_bytes)
        accepted.scratch_bytes = std::max(accepted.scratch_bytes, at_once - accepted.rows_bytes);
    return std::nullopt;
}

}  // namespace linkcpp::worker
