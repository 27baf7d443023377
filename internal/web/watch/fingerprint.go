package watch

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
)

// fingerprint differs between two looks if an input of the explanation changed.
func fingerprint(a view.Around, e *events) string {
	var b strings.Builder
	for _, o := range a.PVs {
		fmt.Fprintln(&b, o.UID, o.ResourceVersion)
	}
	for _, o := range a.Claims {
		fmt.Fprintln(&b, o.UID, o.ResourceVersion)
	}
	for i := range a.Pods {
		fmt.Fprintln(&b, a.Pods[i].UID, a.Pods[i].ResourceVersion)
	}
	for _, o := range a.Nodes {
		fmt.Fprintln(&b, o.UID, o.Spec, o.Status.Conditions)
	}
	for i := range a.Attachments {
		fmt.Fprintln(&b, a.Attachments[i].UID, a.Attachments[i].ResourceVersion)
	}
	for _, o := range a.Fences {
		fmt.Fprintln(&b, o.UID, o.ResourceVersion)
	}
	fmt.Fprintln(&b, a.Gone, a.More)
	for _, o := range e.all().Value {
		fmt.Fprintln(&b, o.UID, o.ResourceVersion)
	}
	return b.String()
}
