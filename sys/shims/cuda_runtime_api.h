/* What nvjpeg.h takes from the header of this name, for making the bindings (sys/build.rs). */
#include <stddef.h>
typedef struct CUstream_st *cudaStream_t;
