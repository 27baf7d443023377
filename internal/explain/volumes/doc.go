// Package volumes explains PVs and claims, sums up the PVs of each driver, and plans the release of a driver's PVs.
//
// [ReadPV], [ReadClaim], [ReadStatus] and [ReadRelease] read; [ExplainPV], [ExplainClaim], [StatusOf] and [PlanRelease]
// are pure functions of the facts that they return. They call the decision functions of reclaim, intree, provision and
// pvc. The memory of a running csi-reclaimer cannot be read from outside, so each decision is the decision of a
// program that has just started.
package volumes
