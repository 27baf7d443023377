// Package admission acts while the API server admits a write: it protects a PV in the write that binds it or sets its
// policy to Delete, and keeps pods off terminating claims.
//
// The first is a MutatingAdmissionPolicy ([Policy]), which needs no running program; for API servers before 1.36 the
// same rule ([missingFinalizers]) is a webhook. The second ([DenialReason]) reads other objects, so it is a webhook
// everywhere. Neither may stop a cluster, so a write that cannot be reviewed is admitted. Package certs rotates the
// certificates of the webhooks, and package podsafety decides on new pods.
//
// Stability: for the programs of this repository. It may change with each release.
package admission
