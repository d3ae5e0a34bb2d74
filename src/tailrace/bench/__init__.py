"""The papers' figures, run again, each beside a peer that is measured in the same run.

`registry.BENCHES` names the benches. A bench starts its roles (publisher, subscribers, bare Flight, writer) as
processes of their own, prepares everything that is not to be measured, and measures in rounds that alternate with the
peer's.
"""
