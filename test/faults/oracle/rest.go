package oracle

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Unresting is a PV that is not at rest, and why.
type Unresting struct {
	PV  Object
	Why string
}

// Unrest returns the PVs of a driver for which something is still to happen that no user has to do first: the sidecar's
// work, or the stock controllers'. now are all PVs, claims and attachments of the driver; finalizer is what protects.
func Unrest(driver, finalizer string, now []Object) []Unresting {
	var unresting []Unresting
	for _, pv := range now {
		if pv.Kind != PV || pv.Driver != driver {
			continue
		}
		if why := restless(pv, finalizer, now); why != "" {
			unresting = append(unresting, Unresting{pv, why})
		}
	}
	return unresting
}

func restless(pv Object, finalizer string, now []Object) string {
	claim := slices.IndexFunc(now, func(o Object) bool { return o.Kind == Claim && pv.ClaimUID != "" && o.UID == pv.ClaimUID })
	bound, protected := pv.Phase == string(v1.VolumeBound), pv.has(finalizer)
	switch {
	case claim >= 0 && now[claim].Terminating:
		return "its claim is going"
	case bound && pv.ClaimUID != "" && claim < 0:
		return "its claim is gone, and its phase is Bound"
	case pv.due() && claim < 0 && protected && !inUse(pv, now):
		return "its volume is to be deleted: " + pv.String()
	case pv.due() && claim < 0 && !protected && !pv.Terminating:
		return "its volume is to be deleted, and nothing protects it: " + pv.String()
	case pv.Policy == "Delete" && pv.ClaimUID != "" && bound && !pv.Terminating && !protected:
		return "nothing protects it: " + pv.String()
	case pv.Policy != "Delete" && protected && (!pv.Terminating || !bound):
		return "its volume is to be kept, and the finalizer is on it: " + pv.String()
	case pv.ClaimUID == "" && pv.Terminating && protected:
		return "it is not claimed, and the finalizer is on it: " + pv.String()
	case pv.Terminating && !bound && onlyProtection(pv):
		return "nothing holds it but the protection of PVs in use: " + pv.String()
	}
	return ""
}

// pvProtection is the finalizer of the stock controller for PVs in use.
const pvProtection = "kubernetes.io/pv-protection"

func onlyProtection(pv Object) bool {
	return !slices.ContainsFunc(pv.Finalizers, func(f string) bool { return f != pvProtection })
}

// inUse tells whether an attachment or another PV needs the volume.
func inUse(pv Object, now []Object) bool {
	family := []string{pv.Name}
	for _, o := range now {
		if o.Kind == PV && o.UID != pv.UID && o.Driver == pv.Driver && o.Handle == pv.Handle {
			if !o.due() {
				return true
			}
			family = append(family, o.Name)
		}
	}
	return slices.ContainsFunc(now, func(o Object) bool { return o.Kind == Attachment && slices.Contains(family, o.Volume) })
}
