#pragma once
// Before a slice is offered to anybody: does every expert of it compute, and compute finite numbers? Weights that were
// damaged before their digests were made, or a device that cannot compute them, show here and not in somebody's answer.

#include "moe/engine.h"

namespace linkcpp::worker {

/// The routed FFN of a layer with these matrices, activated the usual way; which activation the model really has does not matter
/// here. Errors: unsupported (matrices that make no FFN).
Result<moe::Program> usual_program(const moe::LayerShapes& shapes);

/// One row through every expert of every layer. Errors: corrupt (naming layer and expert; numbers that are not finite, or
/// all zero), those of Engine::compute() and usual_program().
Status self_test(moe::Engine& engine);

}  // namespace linkcpp::worker
