"""What CUDA kernels are written with (`tw_cuda.h`), and the compiler that builds them without a GPU (`nvrtc`)."""
