// The SIMD targets that tensor/kernels/ is compiled for; every file there includes this before
// Highway. AVX3 is Highway's name for AVX-512 with BW, DQ and VL. Left out are the newer AVX-512
// generations (the bits below HWY_AVX3), whose code would be the same, and SSSE3, which machines
// without SSE4 are too few to need.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | 0xFF)
