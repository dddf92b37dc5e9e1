//! Finds and loads the NVIDIA libraries that Ocellus uses at run time. Nothing links against CUDA.
