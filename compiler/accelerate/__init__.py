"""Models for accelerators that another compiler makes command streams for: int8 TFLite or TOSA, Vela, one artifact.

chips        the accelerators by name
flatbuffer   TFLite files written with flatbuffers and numpy alone
convert      a QDQ network as operators of TFLite
operators    the operators of ONNX, one function each
tosa         a TFLite program in TOSA's operators, its files, and what they compute
formats      a part given to Vela in either format
vela         Vela in this process: cycles, memories, what it leaves to the CPU and why
choosing     which placement is taken where the CPU may carry out as much as it likes
placement    which operator went where, and what the CPU's share is priced at
rounding     the rules by which TFLite's int8 operators round
kernels      these operators in numpy
reference    a file evaluated by them, and where another runtime differs
judging      the file against the model, and the operator at fault
interpreter  the loader that travels in the artifact
compile      all of it in order
kind         the same under the options of every target, for `compiler.pipeline`
running      artifacts run here: inferences, and estimates in place of benchmarks

Nothing is loaded with the package itself: workers ask it which accelerators there are.
"""
