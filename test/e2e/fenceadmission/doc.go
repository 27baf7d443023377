// Package fenceadmission runs the manifests of node fencing on real API servers: which NodeFences, FencePolicies and
// NodeFenceTemplates their schemas take, which requests the policies refuse, and what the roles allow.
//
// No controller works on the objects here.
package fenceadmission
