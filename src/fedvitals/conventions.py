"""The one table of names: every metric, span and attribute that fedvitals records, with unit, meaning and sensitivity.

Exporters take their names from here, the reference page is generated from it, and a test fails when a field of the
vocabulary is missing. Sensitivity: `public` tells nothing of anyone's data; `aggregate` describes one client's training
in numbers; `sensitive` could be used to compare or guess at clients' data and can be switched off.
"""

from __future__ import annotations

from typing import NamedTuple

PUBLIC, AGGREGATE, SENSITIVE = "public", "aggregate", "sensitive"


class Convention(NamedTuple):
    """One name."""

    name: str
    kind: str  # metric | span | attribute
    unit: str  # UCUM: s, By, 1, {step}
    meaning: str
    sensitivity: str = PUBLIC
    field: str = ""  # Record.field that carries it


CONVENTIONS: tuple[Convention, ...] = (
    # spans
    Convention("fl.run", "span", "s", "A training, from start to close."),
    Convention("fl.round", "span", "s", "One round, from selection to the new model."),
    Convention("fl.client", "span", "s", "One client's participation in a round."),
    Convention("select", "span", "s", "Choosing the clients of a round."),
    Convention("download", "span", "s", "The model on its way to a client."),
    Convention("decode", "span", "s", "Turning received bytes into tensors."),
    Convention("load", "span", "s", "Waiting for the client's own data."),
    Convention("train", "span", "s", "Forward, backward and optimizer steps."),
    Convention("encode", "span", "s", "Turning the update into bytes."),
    Convention("upload", "span", "s", "The update on its way to the server."),
    Convention("wait", "span", "s", "Idle: waiting for others or for a turn."),
    Convention("aggregate", "span", "s", "Combining the updates into a new model."),
    Convention("evaluate", "span", "s", "Judging a model on data."),
    Convention("other", "span", "s", "A phase with a name of the user's own; the name is kept as an attribute."),
    Convention("fl.recording", "span", "s", "What recording itself took of the training's time."),
    Convention("fl.progress", "span", "s", "What telling of a round took, on a terminal or elsewhere."),
    Convention("fl.tensors", "span", "s", "Of no duration: what a model's tensors take, where that was first seen."),
    Convention("fl.heap", "span", "s", "Of no duration: memory in use when a round was over."),
    Convention("fl.allocations", "span", "s", "Lines whose allocations were asked for, with a table of operations."),
    # attributes
    Convention("fl.run.id", "attribute", "1", "Id of the run.", field="Run.id"),
    Convention("fl.run.name", "attribute", "1", "Name the user gave the run.", field="Run.name"),
    Convention("fl.round.number", "attribute", "1", "Number of the round, as the user counts.", field="Round.number"),
    Convention(
        "fl.model.version", "attribute", "1", "Version of the global model a round starts from.", field="Round.version"
    ),
    Convention(
        "fl.model.fingerprint",
        "attribute",
        "1",
        "Short hash of the global model at a round's start.",
        field="Round.fingerprint",
    ),
    Convention(
        "fl.client.id", "attribute", "1", "The client's id, in the server's words.", AGGREGATE, "Participation.client"
    ),
    Convention(
        "fl.client.attempt",
        "attribute",
        "1",
        "Which of its participations this is, from 0.",
        field="Participation.attempt",
    ),
    Convention(
        "fl.client.base_version",
        "attribute",
        "1",
        "Version of the model the client trained from.",
        field="Participation.base_version",
    ),
    Convention(
        "fl.client.applied_version",
        "attribute",
        "1",
        "Version its update went into.",
        field="Participation.applied_version",
    ),
    Convention(
        "fl.client.staleness", "attribute", "{version}", "Versions between the two.", field="Participation.staleness"
    ),
    Convention(
        "fl.client.outcome", "attribute", "1", "used, late, rejected, failed or dropped.", field="Participation.outcome"
    ),
    Convention(
        "fl.client.received",
        "attribute",
        "1",
        "Short hash of the model the client says it received.",
        field="Participation.received",
    ),
    Convention("fl.client.executor", "attribute", "1", "Executor that trained it.", field="Participation.executor"),
    Convention("fl.client.chunk", "attribute", "1", "Batch of clients it was trained in.", field="Participation.chunk"),
    Convention("fl.client.slot", "attribute", "1", "Its place in that batch.", field="Participation.slot"),
    Convention(
        "fl.client.attributed",
        "attribute",
        "1",
        "1 when its times are a share of a batch's.",
        field="Participation.attributed",
    ),
    # attributes of spans; the first three also in the metrics of a participation, for the whole of it
    Convention("rss_bytes", "attribute", "By", "Resident memory: [at its start, highest, at its end].", AGGREGATE),
    Convention("rss_sampled", "attribute", "1", "True: that highest comes from samples; it may have been higher."),
    Convention("rss_shared", "attribute", "1", "True: phases of other threads overlapped, whose memory is in it too."),
    Convention("device_bytes", "attribute", "By", "The same as `rss_bytes` for each accelerator, by its name."),
    Convention("heap_bytes", "attribute", "By", "What the C library had handed out at a round's end, but for our own."),
    Convention("parameters_bytes", "attribute", "By", "Storage of a model's parameters, each storage once."),
    Convention("gradients_bytes", "attribute", "By", "Storage of its gradients."),
    Convention("buffers_bytes", "attribute", "By", "Storage of its buffers."),
    Convention("optimizer_bytes", "attribute", "By", "Storage of its optimizers' state."),
    Convention("operations", "attribute", "By", "By memory moved: [name, calls, net bytes on the CPU, on devices]."),
    Convention("operations_left_out", "attribute", "1", "Further operations that moved memory."),
    Convention("total_cpu_bytes", "attribute", "By", "Sum over all operations, on the CPU."),
    Convention("total_device_bytes", "attribute", "By", "Sum over all operations, on devices."),
    Convention("not_profiled", "attribute", "1", "Why the profiler could not run."),
    # of networks that are imitated: of the phase `select`, and in the metrics of a participation
    Convention("available", "attribute", "{client}", "Clients that could be asked when the round began."),
    Convention("at_work", "attribute", "{client}", "Clients at work as a step without rounds begins."),
    Convention("download_retries", "attribute", "1", "How often its download broke off and was begun again."),
    Convention("upload_retries", "attribute", "1", "How often its upload broke off and was begun again."),
    # metrics of a round
    Convention("fl.round.selected", "metric", "{client}", "Clients asked in a round.", field="Round.selected"),
    Convention("fl.round.used", "metric", "{client}", "Clients whose update was used.", field="Round.used"),
    Convention("fl.round.failed", "metric", "{client}", "Clients that failed.", field="Round.failed"),
    Convention(
        "fl.model.drift.first",
        "metric",
        "1",
        "Distance of the global weights from the first model.",
        field="ModelBlock.drift_first",
    ),
    Convention(
        "fl.model.drift.last",
        "metric",
        "1",
        "Distance of the global weights from the previous model.",
        field="ModelBlock.drift_last",
    ),
    # metrics of a participation
    Convention(
        "fl.client.samples", "metric", "{row}", "Rows the client trained on.", AGGREGATE, "Participation.samples"
    ),
    Convention("fl.client.steps", "metric", "{step}", "Optimizer steps.", AGGREGATE, "Participation.steps"),
    Convention("fl.client.epochs", "metric", "{epoch}", "Passes over its rows.", field="Participation.epochs"),
    Convention("fl.client.loss", "metric", "1", "Mean training loss over its steps.", AGGREGATE, "Participation.loss"),
    Convention(
        "fl.client.loss.first",
        "metric",
        "1",
        "Loss of its first steps: nearly the received model's on its rows.",
        AGGREGATE,
        "Participation.first_loss",
    ),
    Convention("fl.client.loss.last", "metric", "1", "Loss of its last step.", AGGREGATE, "Participation.last_loss"),
    Convention(
        "fl.client.accuracy", "metric", "1", "Training accuracy it reported.", AGGREGATE, "Participation.accuracy"
    ),
    Convention(
        "fl.client.bad_step",
        "metric",
        "{step}",
        "First step seen with a loss or gradient that is not finite.",
        field="Participation.bad_step",
    ),
    Convention(
        "fl.client.good_step",
        "metric",
        "{step}",
        "Last sampled step before it that was finite.",
        field="Participation.good_step",
    ),
    Convention(
        "fl.update.norm", "metric", "1", "Euclidean norm of the whole update.", AGGREGATE, "Participation.update_norm"
    ),
    Convention(
        "fl.update.cosine",
        "metric",
        "1",
        "Cosine to the mean of the others of its cohort.",
        AGGREGATE,
        "Participation.cosine",
    ),
    Convention(
        "fl.update.nonfinite",
        "metric",
        "{value}",
        "Values of the update that are NaN or infinite.",
        field="Participation.nonfinite",
    ),
    *(
        Convention(
            f"fl.client.{phase}",
            "metric",
            "s",
            f"Seconds the client spent in phase `{phase}`.",
            field=f"Participation.{phase}_s",
        )
        for phase in ("download", "decode", "load", "train", "encode", "upload", "wait", "evaluate", "other")
    ),
    Convention(
        "fl.bytes.down.raw", "metric", "By", "Bytes of the model before encoding.", field="Participation.raw_bytes_down"
    ),
    Convention(
        "fl.bytes.down.wire", "metric", "By", "Bytes sent to the client.", field="Participation.wire_bytes_down"
    ),
    Convention(
        "fl.bytes.up.raw", "metric", "By", "Bytes of the update before encoding.", field="Participation.raw_bytes_up"
    ),
    Convention("fl.bytes.up.wire", "metric", "By", "Bytes sent by the client.", field="Participation.wire_bytes_up"),
    Convention(
        "fl.client.memory.peak",
        "metric",
        "By",
        "Peak resident memory, so far, of the process that trained it.",
        field="Participation.peak_memory_bytes",
    ),
    # statistics a layer
    Convention("fl.layer.norm", "metric", "1", "Euclidean norm of a layer.", AGGREGATE, "TensorStats.norm"),
    Convention("fl.layer.mean", "metric", "1", "Mean of a layer.", AGGREGATE, "TensorStats.mean"),
    Convention(
        "fl.layer.std", "metric", "1", "Standard deviation (population) of a layer.", AGGREGATE, "TensorStats.std"
    ),
    Convention("fl.layer.min", "metric", "1", "Smallest value of a layer.", AGGREGATE, "TensorStats.min"),
    Convention("fl.layer.max", "metric", "1", "Largest value of a layer.", AGGREGATE, "TensorStats.max"),
    Convention(
        "fl.layer.zero_ratio", "metric", "1", "Share of exact zeros in a layer.", AGGREGATE, "TensorStats.zero_ratio"
    ),
    Convention(
        "fl.layer.nonfinite", "metric", "{value}", "NaN or infinite values in a layer.", field="TensorStats.nonfinite"
    ),
    # sketches
    Convention(
        "fl.update.sketch",
        "attribute",
        "1",
        "Count sketch of the update divided by its norm.",
        SENSITIVE,
        "UpdateBlock.sketches",
    ),
    Convention(
        "fl.update.unit_norms",
        "attribute",
        "1",
        "Norm of each row of the last matrix's update.",
        SENSITIVE,
        "UpdateBlock.unit_norms",
    ),
    Convention(
        "fl.update.unit_sums",
        "attribute",
        "1",
        "Sum of each row of the last matrix's update.",
        SENSITIVE,
        "UpdateBlock.unit_sums",
    ),
    Convention(
        "fl.update.unit_sketches",
        "attribute",
        "1",
        "8-bucket sketch of each row of the last matrix's update.",
        SENSITIVE,
        "UpdateBlock.unit_sketches",
    ),
    Convention(
        "fl.client.step_losses",
        "metric",
        "1",
        "Losses of single steps (at most 32 are kept).",
        AGGREGATE,
        "UpdateBlock.losses",
    ),
    Convention(
        "fl.gradient.norm", "metric", "1", "Norm of a layer's gradient at a sampled step.", AGGREGATE, "StepBlock.stats"
    ),
    # evaluations
    Convention("fl.eval.loss", "metric", "1", "Loss of a model on data.", field="Evaluation.loss"),
    Convention("fl.eval.accuracy", "metric", "1", "Accuracy of a model on data.", field="Evaluation.accuracy"),
    Convention("fl.eval.samples", "metric", "{row}", "Rows it was judged on.", field="Evaluation.samples"),
    # resources
    Convention(
        "process.memory.rss", "metric", "By", "Resident memory of the process.", field="ResourceSample.rss_bytes"
    ),
    Convention(
        "process.memory.rss.peak",
        "metric",
        "By",
        "Its peak so far, by the kernel's count.",
        field="ResourceSample.peak_rss_bytes",
    ),
    Convention("process.cpu.time", "metric", "s", "CPU time of the process.", field="ResourceSample.cpu_s"),
    Convention("process.threads", "metric", "{thread}", "Threads of the process.", field="ResourceSample.threads"),
    Convention(
        "device.memory.used", "metric", "By", "Accelerator memory in use.", field="ResourceSample.device_used_bytes"
    ),
    Convention("device.memory.peak", "metric", "By", "Its peak so far.", field="ResourceSample.device_peak_bytes"),
    Convention(
        "device.memory.total", "metric", "By", "Accelerator memory there is.", field="ResourceSample.device_total_bytes"
    ),
    Convention(
        "device.busy",
        "metric",
        "1",
        "Share of time the accelerator was busy.",
        field="ResourceSample.device_busy_ratio",
    ),
    # the recorder's own health, kept in Run.health
    Convention(
        "fedvitals.overhead", "metric", "1", "Share of the run's time spent recording, in the training's threads."
    ),
    Convention("fedvitals.writer.cpu", "metric", "s", "CPU time of the writer thread."),
    Convention("fedvitals.dropped", "metric", "{record}", "Records that could not be kept."),
    Convention("fedvitals.memory.measured", "metric", "{span}", "Phases and participations with memory measured."),
    Convention("fedvitals.memory.skipped", "metric", "{span}", "Those skipped because the budget was spent."),
    Convention("fedvitals.stride", "metric", "{step}", "Every how many steps gradients are looked at, lately."),
)
BY_NAME = {convention.name: convention for convention in CONVENTIONS}
