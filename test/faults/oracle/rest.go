package oracle

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Unresting is a PV or claim that is not at rest, and why.
type Unresting struct {
	Object
	Why string
}

// Unrest returns the PVs of a driver with pending work of the sidecar or the stock controllers that waits for no user.
// now are all PVs, claims and attachments of the driver; finalizer is the protecting finalizer.
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
	claim := slices.IndexFunc(now, func(o Object) bool {
		return o.Kind == Claim && pv.ClaimUID != "" &&
			o.UID == pv.ClaimUID
	})
	bound, protected := pv.Phase == string(v1.VolumeBound), pv.has(finalizer)
	switch {
	case claim >= 0 && now[claim].Terminating:
		return "its claim is going"
	case bound && pv.ClaimUID != "" && claim < 0:
		return "its claim is gone, and its phase is Bound"
	case pv.due() && claim < 0:
		if why, decided := restlessVolume(pv, protected, now); decided {
			return why
		}
	}
	return restlessFinalizer(pv, bound, protected)
}

// restlessVolume returns why the volume of a PV with policy Delete, whose claim is gone, is not at rest. decided is
// false if the volume does not matter.
func restlessVolume(pv Object, protected bool, now []Object) (why string, decided bool) {
	switch {
	case named(pv, now):
		return "", true // the claim keeps the volume
	case protected && !inUse(pv, now):
		return "its volume is to be deleted: " + pv.String(), true
	case !protected && !pv.Terminating:
		return "its volume is to be deleted, and nothing protects it: " + pv.String(), true
	}
	return "", false
}

// restlessFinalizer returns why the finalizers of a PV are not at rest, empty if they are.
func restlessFinalizer(pv Object, bound, protected bool) string {
	switch {
	case needsProtection(pv) && bound && !protected:
		return "nothing protects it: " + pv.String()
	case pv.Policy != "Delete" && protected && (!pv.Terminating || !bound):
		return "its volume is to be kept, and it has the finalizer: " + pv.String()
	case pv.ClaimUID == "" && pv.Terminating && protected:
		return "it is not claimed, and it has the finalizer: " + pv.String()
	case pv.Terminating && !bound && onlyProtection(pv):
		return "nothing holds it but the protection of PVs in use: " + pv.String()
	}
	return ""
}

// needsProtection reports whether a PV that is not terminating has a claim, and policy Delete.
func needsProtection(pv Object) bool {
	return pv.Policy == "Delete" && pv.ClaimUID != "" && !pv.Terminating
}

// pvProtection is the finalizer of the stock controller for PVs in use.
const pvProtection = "kubernetes.io/pv-protection"

func onlyProtection(pv Object) bool {
	return !slices.ContainsFunc(pv.Finalizers, func(f string) bool { return f != pvProtection })
}

// inUse reports whether an attachment or another PV needs the volume.
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
	return slices.ContainsFunc(now,
		func(o Object) bool { return o.Kind == Attachment && slices.Contains(family, o.Volume) })
}

// named reports whether another claim of the name in the PV's claimRef names the PV. It keeps the volume.
func named(pv Object, now []Object) bool {
	return slices.ContainsFunc(now, func(o Object) bool {
		return o.Kind == Claim && o.Namespace == pv.ClaimNamespace && o.Name == pv.ClaimName && o.UID != pv.ClaimUID &&
			o.Volume == pv.Name
	})
}

// UnrestClaims returns the claims with pending work of the driver's provisioner or a stock controller that waits for no
// user.
func UnrestClaims(driver string, now []Object) []Unresting {
	var unresting []Unresting
	for _, claim := range now {
		// The annotation that says so comes a moment after the claim.
		ours := func(o Object) bool { return o.Kind == Class && o.Name == claim.Class && o.Driver == driver }
		if claim.Kind != Claim || claim.Driver != driver && !slices.ContainsFunc(now, ours) {
			continue
		}
		if why := restlessClaim(claim, now); why != "" {
			unresting = append(unresting, Unresting{claim, why})
		}
	}
	return unresting
}

func restlessClaim(claim Object, now []Object) string {
	pv := slices.IndexFunc(now, func(o Object) bool { return o.Kind == PV && o.ClaimUID == claim.UID })
	class := slices.ContainsFunc(now, func(o Object) bool { return o.Kind == Class && o.Name == claim.Class })
	switch {
	case claim.Terminating:
		return "it is going"
	case claim.Volume != "" && pv >= 0 && claim.Phase == string(v1.ClaimPending):
		return "it is being bound"
	case claim.Volume != "":
		return ""
	case pv >= 0 && !now[pv].Terminating:
		return "its PV is there, and it is not bound to it"
	case pv >= 0:
		return "" // the PV was deleted before it was bound: it stays until its claim goes, and its name is taken
	case class:
		return "it has no volume"
	}
	return ""
}

// UnrestLog returns the volumes of the in-flight log's entries: each is still to be settled.
func UnrestLog(now []Object) []Unresting {
	var unresting []Unresting
	for _, o := range now {
		for _, volume := range o.Entries {
			unresting = append(unresting, Unresting{Object{Kind: PV, Name: volume}, "the in-flight log has an entry for it"})
		}
	}
	return unresting
}
