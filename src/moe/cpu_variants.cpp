// In a static program for 64-bit ARM: ggml's CPU backend is there several times, compiled for different instructions
// (cmake/static_ggml.cmake), and this takes the place of its entry, so that ggml's registry gets the best one that the
// processor can run. Each is a numeric class of its own.

#include <asm/hwcap.h>
#include <ggml-cpu.h>
#include <sys/auxv.h>

extern "C" {
ggml_backend_reg_t linkcpp_cpu_reg_armv8();
ggml_backend_reg_t linkcpp_cpu_reg_dotprod();
ggml_backend_reg_t linkcpp_cpu_reg_i8mm();
}

ggml_backend_reg_t ggml_backend_cpu_reg() {
    // What the compiler may use for armv8.2-a+fp16+dotprod.
    constexpr unsigned long armv8_2 = HWCAP_ATOMICS | HWCAP_ASIMDRDM | HWCAP_FPHP | HWCAP_ASIMDHP | HWCAP_ASIMDDP;
    static const ggml_backend_reg_t chosen = [] {
        if ((getauxval(AT_HWCAP) & armv8_2) != armv8_2) return linkcpp_cpu_reg_armv8();
        return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) == 0 ? linkcpp_cpu_reg_dotprod() : linkcpp_cpu_reg_i8mm();
    }();
    return chosen;
}
