// Expert programs from a peer: what decodes has one encoding, its own bytes, and is checked against any shapes a layer could
// claim to have.
//
// Input: for each of the four matrices one byte (bit 0 present, bit 1 with bias) and two i64 (n_in, n_out); then the program.
#include "fuzz/check.h"
#include "moe/program.h"

using namespace linkcpp;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ByteSpan input(data, size);
    moe::LayerShapes shapes;
    for (auto& matrix : shapes.matrix) {
        const auto bits = fuzz::cut<uint8_t>(input);
        matrix.present = bits & 1;
        matrix.has_bias = bits & 2;
        matrix.n_in = fuzz::cut<int64_t>(input);
        matrix.n_out = fuzz::cut<int64_t>(input);
    }
    const auto program = moe::decode_program(input);
    if (!program.ok()) {
        require(!program.status().message().empty(), "an error has a reason");
        return 0;
    }
    const Bytes again = moe::encode_program(*program);
    require(std::equal(input.begin(), input.end(), again.begin(), again.end()), "a program encodes to its own bytes");
    require(!moe::describe(*program).empty(), "a program can be shown");
    const auto widths = moe::check_program(*program, shapes);
    if (!widths.ok()) return 0;
    bool takes_input = false;
    for (const auto& matrix : shapes.matrix)
        takes_input = takes_input || (matrix.present && matrix.n_in == widths->n_in);
    require(takes_input, "an input row has the width of a matrix that is there");
    return 0;
}
