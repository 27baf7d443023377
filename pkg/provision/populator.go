package provision

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// announce records once for the claim's owner who provisions the volume, where nobody else would say so.
func (p *Provisioner) announce(ctx context.Context, claim *v1.PersistentVolumeClaim, err error) {
	if !request.ReasonOf(err).Announced() {
		return
	}
	p.recorder.ReportAside(ctx, eventOn(p.claimOf(claim)), provisioning.ReasonLeftToPopulator, err.Error())
}
