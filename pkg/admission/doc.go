// Package admission is what the API server is asked to do, or asks, while it takes a write: protect a PV in
// the same write that binds it or turns its policy, and keep pods off claims that are being deleted.
//
// The first is a MutatingAdmissionPolicy ([Policy]), which needs no program to run; for API servers
// before 1.36 the same rule ([Missing]) is a webhook. The second ([Refusal]) needs to read other
// objects, so it is a webhook everywhere. Neither may stop a cluster: what cannot be judged is let
// through. The certificates of the webhooks are the package certs'.
package admission
