// Package fenceadmission tests the manifests of node fencing on real API servers: the schemas of NodeFences,
// FencePolicies and NodeFenceTemplates, the refusals of the policies, and the permissions of the roles.
//
// No controller works on the objects here.
package fenceadmission
