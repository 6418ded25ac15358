"""Convolutions of few input channels, such as first layers, from an image in shared memory.

geometry  what it asks of a kernel, how k is ordered, and the weights in that order
staging   rows of the image on their way to shared memory
product   fragments of A from the image
tiles     the legal tiles and what they should take
lowering  the CUDA C++
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.image.lowering import lower_cuda_image
from compiler.devices.cuda.algorithms.image.tiles import cuda_image_tiles

IMAGE = CudaAlgorithm(("mma_image", "mma_image_tf32"), cuda_image_tiles, lower_cuda_image)
