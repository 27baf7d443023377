// Package singlenodeadmission runs the manifests of single-node on a real API server: which pods get the gate, and
// which requests the policies refuse. Where the API server knows no MutatingAdmissionPolicy, volume-guard's webhooks do
// their part. No other controller of ours runs.
package singlenodeadmission
