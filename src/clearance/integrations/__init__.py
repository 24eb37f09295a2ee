"""Clearance in other people's tools: one file for each package, imported by name, which imports the package.

| file | what it has |
|---|---|
| `lightning` | `AuditCallback`; `TrainsClassifier`, a mixin for a LightningModule |
| `transformers` | `AuditCallback`; `TrainsClassifier`, a mixin for a Trainer |
| `sklearn` | `ClearanceClassifier`, a scikit-learn classifier |
| `ray` | `RayEngine`, an engine for many runs |
| `submitit` | `SubmititEngine`, the same on SLURM |

`Card.log_to` sends numbers and page to MLflow, Weights & Biases or TensorBoard; it needs no file here.
"""
