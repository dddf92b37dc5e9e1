/* What nvjpeg.h takes from the header of this name, for making the bindings (tests/nvjpeg-bindgen). */
#include <stddef.h>
typedef struct CUstream_st *cudaStream_t;
