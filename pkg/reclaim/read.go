package reclaim

import (
	"context"
	"errors"
	"fmt"
)

// The steps of a run that only look: each reads something live and adds it to the facts.

func (w *run) catchUp(ctx context.Context) error {
	list, err := w.cluster.listAttachments(ctx)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	if list.complete {
		w.listed = list.ofPV
	} else if !w.observer.attachmentWatch.Reached(list.version) {
		return because(ReasonCatchingUp, errBehind)
	}
	w.facts.AttachmentsCurrent = true
	return nil
}

// readSecrets reads the Secret that the PV's annotations name, or else its StorageClass.
// What does not exist is left out, as the stock provisioner does; what cannot be read or
// told stops the deletion, for a driver must not be asked with the wrong credentials.
func (w *run) readSecrets(ctx context.Context) error {
	ref, err := w.secretRef(ctx)
	switch {
	case errors.Is(err, errSecretUnclear):
		return because(ReasonSecretUnclear, err)
	case err != nil:
		return because(ReasonUnreadable, err)
	case ref == (SecretRef{}):
		w.facts.SecretsRead = true
		return nil
	}
	secrets, found, err := w.cluster.readSecret(ctx, ref)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	if !found {
		w.reports.aside(ctx, w.facts.PV, ReasonSecretNotFound, fmt.Sprintf("Secret %s/%s", ref.Namespace, ref.Name))
	}
	w.secrets, w.facts.SecretsRead = secrets, true
	return nil
}

func (w *run) secretRef(ctx context.Context) (SecretRef, error) {
	pv := w.facts.PV
	switch {
	case pv.SecretKnown:
		return secretOf(pv)
	case pv.StorageClass == "":
		return SecretRef{}, nil
	}
	parameters, found, err := w.cluster.readClass(ctx, pv.StorageClass)
	if err != nil {
		return SecretRef{}, err
	}
	if !found {
		// Most static PVs name a class that is a mere label, so only for others is it news.
		if pv.dynamic() {
			w.reports.aside(ctx, pv, ReasonSecretNotFound, fmt.Sprintf("StorageClass %s, which would name it", pv.StorageClass))
		}
		return SecretRef{}, nil
	}
	return secretOfClass(pv, parameters)
}

// nextRead is called before a live read is sent.
func (w *run) nextRead() Read {
	w.reads++
	return Read{Sent: w.cfg.Clock.Now(), Order: w.reads}
}

func (w *run) readClaim(ctx context.Context) error {
	read := w.nextRead()
	claim, err := w.cluster.readClaim(ctx, w.facts.PV.Claim)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	claim.Read = read
	w.facts.Claim = claim
	return nil
}

func (w *run) readSiblings(ctx context.Context) error {
	read := w.nextRead()
	var there []PV
	for _, cached := range w.facts.Siblings {
		other, found, err := w.cluster.readPV(ctx, cached.Name)
		switch {
		case err != nil:
			return because(ReasonUnreadable, err)
		case !found || other.UID != cached.UID:
			if w.gone == nil {
				w.gone = map[string]bool{}
			}
			w.gone[string(cached.UID)] = true
		default:
			there = append(there, other)
		}
	}
	w.facts.Siblings, w.facts.SiblingsRead = there, read
	return nil
}

// readFamily makes sure that no other PV names the volume.
func (w *run) readFamily(ctx context.Context) error {
	read := w.nextRead()
	list, err := w.cluster.listPVs(ctx)
	switch {
	case err != nil:
		return because(ReasonUnreadable, err)
	case !list.complete && !w.observer.pvWatch.Reached(list.version):
		return because(ReasonCatchingUp, errBehind)
	}
	for _, other := range list.pvs {
		if other.Handle == w.facts.PV.Handle && other.Driver == w.facts.PV.Driver && other.UID != w.facts.PV.UID {
			w.facts.End.Shared = true
		}
	}
	w.facts.FamilyRead = read
	return nil
}

func (w *run) readPV(ctx context.Context) error {
	read := w.nextRead()
	pv, found, err := w.cluster.readPV(ctx, w.facts.PV.Name)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	if !found || pv.UID != w.facts.PV.UID {
		return errEnded
	}
	w.facts.PV, w.facts.PVRead = pv, read
	return nil
}
