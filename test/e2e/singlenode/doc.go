// Package singlenode tests that a claim is used by one pod at a time, for volumes that nothing attaches, with the
// workloads and the failures that would otherwise have two pods write to one volume. A history of all versions of pods
// and claims is judged at the end of each scenario; see judge. On Kubernetes 1.36 and newer an admission policy gates
// the pods, on older ones a webhook.
package singlenode
