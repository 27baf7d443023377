package provision

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/order"
)

// announce tells the claim's owner once who makes the volume, where the order says that nobody else would.
func (w *run) announce(ctx context.Context, err error) {
	if !order.ReasonOf(err).Announced() {
		return
	}
	if _, before := w.reports.announced.LoadOrStore(w.claim.UID, true); !before {
		w.reports.tell(ctx, w.claimOf(w.claim), ReasonLeftToPopulator, err.Error())
	}
}
