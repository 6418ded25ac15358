"""Changes that were once made and that no test noticed, and others at places on which much depends.

Every one has its test now.
"""

from __future__ import annotations

from tests.mutants.mutant import Wanted

AGREE = "tests/compiler/prove/test_agree.py"
FUSE = "tests/compiler/fuse/test_fuse.py"
GUARDS = "tests/compiler/devices/cpu/emit/test_guards.py"
EMITTED = "tests/ptx/test_families.py::test_single_instructions_do_what_their_families_expect"
PLANS = "tests/compiler/schedule/test_schedule.py"
RANGES = "tests/compiler/steps/test_ranges_of_sizes.py"
RECORDS = "tests/compiler/ir/test_machine.py"
RETENTION = "tests/service/jobs/operations/test_retention.py"
TRIMMING = "tests/compiler/devices/cpu/codegen/test_trimming.py"
WALLS = "tests/worker/sandbox/test_enter.py"
WAITS = "tests/compiler/schedule/plans/test_tasks.py"

FIXED: tuple[Wanted, ...] = (
    # What proves an artifact.
    Wanted(
        "agreement: only the first output is judged",
        "compiler/prove/agree.py",
        "        for at, (value, error) in enumerate(zip(outputs, errors, strict=True))\n",
        "        for at, (value, error) in enumerate(zip(outputs[:1], errors[:1], strict=True))\n",
        (f"{AGREE}::test_every_output_is_judged",),
    ),
    Wanted(
        "agreement: another kind of what is not finite passes",
        "compiler/prove/agree.py",
        "    unlike |= np.isinf(rounded) & np.isinf(have) & (have != rounded)\n",
        "",
        (AGREE,),
    ),
    Wanted(
        "agreement: only the first way to run it is judged",
        "compiler/prove/agree.py",
        "    for run in runners:\n        got = list(run(given))\n",
        "    for run in runners[:1]:\n        got = list(run(given))\n",
        (AGREE,),
    ),
    Wanted(
        "agreement: memory keeps what another run wrote",
        "compiler/pack/loader/program.py",
        "library.calls.tw_poison(self.instance, POISON)",
        "False",
        ("tests/compiler/steps/test_poison.py",),
    ),
    Wanted(
        "agreement: the reference is evaluated on the rewritten graph",
        "compiler/steps/proving.py",
        "yield Case(front.opened.loaded.graph, shapes",
        "yield Case(front.rewritten.graph, shapes",
        ("tests/compiler/test_pipeline.py::test_a_wrong_rule_is_found_by_a_reference_that_no_rule_has_touched",),
    ),
    Wanted(
        "ranges: an output is judged at whatever size it has",
        "compiler/steps/proving.py",
        "if not any(number is not None for number in axes) and array.shape != value.type.dims:",
        "if False:",
        (f"{RANGES}::test_a_program_that_says_other_sizes_than_the_model_is_found",),
    ),
    Wanted(
        "ranges: what the last register tiles of a product computed beyond a size stays",
        "compiler/devices/cpu/products/contraction/lowering.py",
        "        if self.overwrites:\n",
        "        if False:\n",
        (f"{TRIMMING}::test_what_lies_beyond_sizes_in_the_last_tiles_is_stored_again",),
    ),
    Wanted(
        "ranges: what the last register tile of a window computed beyond a width stays",
        "compiler/devices/cpu/products/window/lowering.py",
        """        self.trimming.overwrite(columns, tile.extent("register", "columns", 1) - 1, (rows, channels))\n""",
        "",
        (f"{TRIMMING}::test_what_lies_beyond_sizes_in_the_last_tiles_is_stored_again",),
    ),
    Wanted(
        "ranges: what an earlier run left beyond the sizes stays",
        "compiler/pack/loader/capacity.py",
        "            if old > new:\n",
        "            if False:\n",
        ("tests/compiler/steps/test_open_models.py::test_what_an_earlier_run_left_beyond_the_sizes_is_never_summed",),
    ),
    # Memory and waits of plans.
    Wanted(
        "fuse: in place if one of several reads is at the point",
        "compiler/fuse/fuse.py",
        "return all(load.index == stores[0].index for load in loads)",
        "return any(load.index == stores[0].index for load in loads)",
        (FUSE,),
    ),
    Wanted(
        "fuse: in place whatever is read",
        "compiler/fuse/fuse.py",
        "return all(load.index == stores[0].index for load in loads)",
        "return True",
        (FUSE,),
    ),
    Wanted(
        "races: a call may write over what lies at another place",
        "compiler/ir/plans/races.py",
        "            if arena[new][0] == arena[old][0]\n",
        "",
        (PLANS,),
    ),
    Wanted(
        "races: every call may write over what it reads",
        "compiler/ir/plans/races.py",
        "            if call is not None and (new, old) in written_over(kernels, call)\n",
        "",
        (PLANS,),
    ),
    Wanted(
        "races: the last task waited for need not have ended",
        "compiler/ir/plans/races.py",
        "return self.begins[other.lane] >= other.number",
        "return self.begins[other.lane] >= other.number - 1",
        (PLANS, WAITS),
    ),
    # Which plan is taken.
    Wanted(
        "scheduler: one that is asked for never gives way to one lane",
        "compiler/schedule/schedule.py",
        "(min([alone, *drifting, *beside], key=_predicted),)",
        "(min([*drifting, *beside], key=_predicted),)",
        (PLANS,),
    ),
    Wanted(
        "plan by lanes: one for as many as are wanted is too large",
        "compiler/devices/cpu/runtime/tw_runtime.h",
        "plan->lanes <= lanes",
        "plan->lanes < lanes",
        (GUARDS,),
    ),
    Wanted(
        "plan by lanes: however many are wanted",
        "compiler/devices/cpu/runtime/tw_runtime.h",
        "(lanes <= 0 || plan->lanes <= lanes) && handover_ns",
        "handover_ns",
        (GUARDS,),
    ),
    Wanted(
        "plan by lanes: exactly as many as it needs are too few",
        "compiler/devices/cpu/runtime/tw_runtime.h",
        "config->lanes >= m->plan->lanes ?",
        "config->lanes > m->plan->lanes ?",
        (GUARDS,),
    ),
    Wanted(
        "plan by lanes: the loader counts exactly as many as too few",
        "compiler/pack/loader/model.py",
        "lanes >= self.plan.lanes or",
        "lanes > self.plan.lanes or",
        (GUARDS,),
    ),
    # Measurements.
    Wanted(
        "state of cores: one interrupted rally makes them far",
        "compiler/devices/cpu/measure/machine.py",
        "for _ in range(STATE_RALLIES))",
        "for _ in range(1))",
        (
            "tests/compiler/devices/cpu/measure/test_machine.py::test_a_rally_that_another_process_interrupts_does_not_make_near_cores_far",
        ),
    ),
    Wanted(
        "is_plausible: one text is enough",
        "compiler/ir/machine.py",
        "all(isinstance(text, str) for text in texts)",
        "any(isinstance(text, str) for text in texts)",
        (RECORDS,),
    ),
    Wanted(
        "is_plausible: no shortest time",
        "compiler/ir/machine.py",
        "and LEAST_SECONDS <= self.seconds <=",
        "and 0 < self.seconds <=",
        (RECORDS,),
    ),
    Wanted(
        "is_plausible: no longest time",
        "compiler/ir/machine.py",
        "and LEAST_SECONDS <= self.seconds <= MOST_SECONDS",
        "and LEAST_SECONDS <= self.seconds",
        (RECORDS,),
    ),
    Wanted(
        "is_plausible: records that come from outside are not looked at",
        "compiler/ir/machine.py",
        "for record in map(Record.from_json, whole) if record.is_plausible]",
        "for record in map(Record.from_json, whole)]",
        (RECORDS,),
    ),
    Wanted(
        "is_plausible: a search believes its machine",
        "compiler/tuning/search.py",
        "            if not record.is_plausible:\n                continue\n",
        "",
        ("tests/compiler/tuning/test_search.py",),
    ),
    Wanted(
        "is_plausible: times on several lanes are believed",
        "compiler/tuning/shared.py",
        "            if record.is_plausible:\n",
        "            if True:\n",
        ("tests/compiler/tuning/test_shared.py",),
    ),
    Wanted(
        "is_plausible: times of choices are believed",
        "compiler/steps/costs/graphs.py",
        "                if record.is_plausible:\n",
        "                if True:\n",
        ("tests/compiler/steps/costs/test_graphs.py",),
    ),
    # Kernels.
    Wanted(
        "cu_gemv: columns that fill up a block are stored",
        "compiler/devices/cuda/algorithms/gemv.py",
        "if self.packing.columns > view.columns:",
        "if self.packing.columns < view.columns:",
        (
            "tests/compiler/devices/cuda/algorithms/test_gemv.py::test_nothing_is_stored_for_the_columns_that_only_fill_up_a_block",
        ),
    ),
    # The walls around a job, and what others have entrusted.
    Wanted("seccomp: a rule is dropped", "worker/sandbox/seccomp.py", '    "keyctl": (250, 219),\n', "", (WALLS,)),
    Wanted("seccomp: a number on x86-64 is wrong", "worker/sandbox/seccomp.py", "(321, 280)", "(322, 280)", (WALLS,)),
    Wanted("seccomp: a number on arm64 is wrong", "worker/sandbox/seccomp.py", "(308, 268)", "(308, 269)", (WALLS,)),
    Wanted("seccomp: a new call has a wrong number", "worker/sandbox/seccomp.py", "(452, 452)", "(453, 452)", (WALLS,)),
    Wanted(
        "seccomp: shared pages that belong to no file are allowed",
        "worker/sandbox/seccomp.py",
        "_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20",
        "_MAP_SHARED, _MAP_ANONYMOUS = 0x04, 0x20",
        (WALLS,),
    ),
    Wanted(
        "seccomp: the priority of others may be changed",
        "worker/sandbox/seccomp.py",
        '"setpriority": ((141, 140), 0)',
        '"setpriority": ((141, 140), 7)',
        (WALLS,),
    ),
    Wanted(
        "landlock: files stand although they can be emptied",
        "worker/sandbox/landlock.py",
        '"files_partly" if known < 3',
        '"files_partly" if known < 2',
        (WALLS,),
    ),
    Wanted(
        "layout: a job works on the blob itself",
        "service/blobs/copies.py",
        "            _copy(source, path)\n",
        "            path.hardlink_to(source)\n",
        ("tests/worker/attempt/test_layout.py",),
    ),
    Wanted(
        "copies: a job takes bytes that are not those of its blob",
        "service/blobs/copies.py",
        'if key_of(hashlib.file_digest(copied, "sha256").hexdigest()) == key:',
        "if True:",
        ("tests/worker/attempt/test_layout.py",),
    ),
    Wanted(
        "store: the last chunk of a damaged blob is sent",
        "service/blobs/store.py",
        "    if key_of(digest.hexdigest()) != key:\n        verify()",
        "    if held:\n        yield held\n    if key_of(digest.hexdigest()) != key:\n        verify()",
        ("tests/service/blobs/test_store.py",),
    ),
    Wanted(
        "watch: a kill is for memory although the job held little",
        "worker/processes/watch.py",
        "blamed = NEARLY if not ran_out else LARGE",
        "blamed = NEARLY if not ran_out else 0.0",
        ("tests/worker/processes/test_watch.py",),
    ),
    Wanted(
        "watch: loading is held to wall time",
        "worker/processes/watch.py",
        "if cpu_s > self.limits.load_s:",
        "if wall_s > self.limits.load_s:",
        ("tests/worker/processes/test_watch.py",),
    ),
    Wanted(
        "sandbox: no limit of addresses that any machine has",
        "worker/limits.py",
        "lower(resource.RLIMIT_AS, 2 * limits.memory_bytes + 16 * GIB)",
        "lower(resource.RLIMIT_AS, 2 * limits.memory_bytes + 1024 * GIB)",
        (WALLS,),
    ),
    Wanted(
        "retention: results of inferences are swept",
        "service/db/retention.py",
        "Inference.input_key, Inference.output_key)",
        "Inference.input_key)",
        (RETENTION,),
    ),
    Wanted(
        "retention: arrays of inferences are swept",
        "service/db/retention.py",
        "Inference.input_key, Inference.output_key)",
        "Inference.output_key)",
        (RETENTION,),
    ),
    Wanted(
        "lease: a worker extends what another one has claimed since",
        "service/db/jobs.py",
        ".where(Job.id == job_id, Job.fence == fence, Job.state.in_(HELD))",
        ".where(Job.id == job_id, Job.state.in_(HELD))",
        ("tests/service/jobs/scheduling/test_lease.py",),
    ),
    # What NVRTC emits of text that the double of CUDA replaces by its own.
    Wanted(
        "inline PTX: two registers of a product's operand change places",
        "compiler/devices/cuda/runtime/tw_cuda.h",
        "f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0",
        "f32.f16.f16.f32 {%0, %1, %2, %3}, {%5, %4, %6, %7}, {%8, %9}, {%0",
        (EMITTED,),
    ),
    Wanted(
        "inline PTX: two registers of a sparse product's operand change places",
        "compiler/devices/cuda/runtime/tw_cuda.h",
        "m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}",
        "m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %10, %9, %11}",
        (EMITTED,),
    ),
    Wanted(
        "inline PTX: a conversion to bytes cuts off",
        "compiler/devices/cuda/runtime/tw_cuda.h",
        "cvt.rni.sat.s8.f32 %0",
        "cvt.rzi.sat.s8.f32 %0",
        (EMITTED,),
    ),
    Wanted(
        "inline PTX: a copy of 8 bytes reads them all",
        "compiler/devices/cuda/runtime/tw_cuda.h",
        "cp.async.ca.shared.global [%0], [%1], 8, %2;",
        "cp.async.ca.shared.global [%0], [%1], 8;",
        (EMITTED,),
    ),
    Wanted(
        "inline PTX: matrices are loaded as they lie, not transposed",
        "compiler/devices/cuda/runtime/tw_cuda.h",
        "m8n8.x2.trans.shared.b16",
        "m8n8.x2.shared.b16",
        (EMITTED,),
    ),
    Wanted(
        "inline PTX: a descriptor's stride lies a bit higher",
        "compiler/devices/cuda/runtime/tw_cuda.h",
        "((stride & 0x3ffff) >> 4) << 32",
        "((stride & 0x3ffff) >> 4) << 33",
        (EMITTED,),
    ),
    Wanted(
        "inline PTX: no fence between what threads wrote and asynchronous reads",
        "compiler/devices/cuda/runtime/tw_cuda.h",
        "fence.proxy.async.shared::cta;",
        "",
        (EMITTED,),
    ),
    Wanted(
        "inline PTX: a count is looked at and not acquired",
        "compiler/devices/cuda/runtime/tw_cuda.h",
        "ld.acquire.gpu.global.u32",
        "ld.relaxed.gpu.global.u32",
        ("tests/ptx/test_networks.py::test_a_persistent_kernel_computes_the_same_in_one_inference_after_another",),
    ),
    Wanted(
        "inline PTX: unsigned bytes of a sparse product are taken as signed",
        "compiler/devices/cuda/runtime/tw_wgmma_bytes.h",
        'TW_WGMMA_SP_OF(s8_u8, "s8.u8", __VA_ARGS__)',
        'TW_WGMMA_SP_OF(s8_u8, "s8.s8", __VA_ARGS__)',
        (EMITTED,),
    ),
)
