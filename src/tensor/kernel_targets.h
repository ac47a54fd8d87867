// The SIMD targets that tensor/kernels/ is compiled for; every file there includes this before
// Highway. AVX3 is Highway's name for AVX-512 with BW, DQ and VL. Left out are the newer AVX-512
// generations (the bits below HWY_AVX3), whose code would be the same; SSSE3, since machines
// without SSE4 are too few; and SVE, whose vectors cannot be members or arrays (Arm runs NEON).
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | 0xFF | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
