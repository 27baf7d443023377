package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Reader reads the facts for explanations, and its methods are safe for concurrent use.
type Reader struct {
	clients kube.Clients
	pods    *pods.Reader
}

// New returns a Reader of the cluster that config describes. It copies config and reads nothing yet.
func New(config *rest.Config, cfg pods.Config) (*Reader, error) {
	if config == nil {
		return nil, errors.New("create a reader: nil rest.Config")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	ofPods, err := pods.New(config, cfg)
	if err != nil {
		return nil, err
	}
	return &Reader{clients: clients, pods: ofPods}, nil
}

// List reads the facts about the locks of a namespace, or of all namespaces if namespace is empty. It returns an error
// if claims or pods cannot be read, because an unseen object would look as if it did not exist.
func (r *Reader) List(ctx context.Context, namespace string) (f Facts, err error) {
	f.Modes = r.Modes(ctx, namespace)
	claims, err := kube.ListAll(ctx, r.clients.Core.PersistentVolumeClaims(namespace).List, metav1.ListOptions{}, ClaimOf)
	if err != nil {
		return Facts{}, fmt.Errorf("list claims: %w", err)
	}
	f.Claims = explain.Found(claims)
	if f.ListFacts, err = r.pods.List(ctx, namespace); err != nil {
		return Facts{}, err
	}
	f.Complete(func() explain.Read[map[string]map[string]string] { return r.classes(ctx) },
		func(names []string) explain.Read[map[string]*PV] { return r.pvs(ctx, names) })
	f.Guards = r.pods.Guards(ctx)
	return f, nil
}

// Modes reads the single-node mode of a namespace, or of all namespaces if namespace is empty.
func (r *Reader) Modes(ctx context.Context, namespace string) explain.Read[map[string]singlenode.Mode] {
	modes := map[string]singlenode.Mode{}
	if namespace != metav1.NamespaceAll {
		o, err := r.clients.Core.Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return explain.Failed[map[string]singlenode.Mode](err)
		default:
			modes[namespace] = singlenode.ModeOf(o.Labels)
		}
		return explain.Found(modes)
	}
	_, err := kube.ListAll(ctx, r.clients.Core.Namespaces().List, metav1.ListOptions{}, func(o *v1.Namespace) string {
		modes[o.Name] = singlenode.ModeOf(o.Labels)
		return ""
	})
	if err != nil {
		return explain.Failed[map[string]singlenode.Mode](err)
	}
	return explain.Found(modes)
}

// Complete reads the StorageClasses and PVs on which a decision may depend. pvs is called with sorted names, and
// returns nil for a PV that does not exist.
func (f *Facts) Complete(classes func() explain.Read[map[string]map[string]string],
	pvs func(names []string) explain.Read[map[string]*PV]) {
	needsClasses, names := f.toRead()
	if needsClasses {
		f.Classes = classes()
	}
	if len(names) > 0 {
		f.PVs = pvs(names)
	}
}

// toRead reports whether a decision may depend on a StorageClass, and names the PVs on which one may depend: the PVs
// of gated pods' claims, and, for their drivers, of locked claims that terminating pods use.
func (f Facts) toRead() (classes bool, pvs []string) {
	i := f.index()
	need := map[string]bool{}
	for _, p := range f.Pods.Value {
		for _, claim := range p.Claims {
			c := i.claims[key{p.Namespace, claim}]
			if !p.Gated && (!p.Terminating || !c.Locked) {
				continue
			}
			classes = classes || c.Class != ""
			if c.Volume != "" {
				need[c.Volume] = true
			}
		}
	}
	for name := range need {
		pvs = append(pvs, name)
	}
	slices.Sort(pvs)
	return classes, pvs
}

func (r *Reader) classes(ctx context.Context) explain.Read[map[string]map[string]string] {
	asks := map[string]map[string]string{}
	_, err := kube.ListAll(ctx, r.clients.Storage.StorageClasses().List, metav1.ListOptions{},
		func(o *storagev1.StorageClass) string {
			asks[o.Name] = Asking(o)
			return ""
		})
	if err != nil {
		return explain.Failed[map[string]map[string]string](err)
	}
	return explain.Found(asks)
}

// maxGets is the number of PVs up to which GETs are cheaper than a list of all PVs.
const maxGets = 50

func (r *Reader) pvs(ctx context.Context, names []string) explain.Read[map[string]*PV] {
	found := map[string]*PV{}
	if len(names) > maxGets {
		_, err := kube.ListAll(ctx, r.clients.Core.PersistentVolumes().List, metav1.ListOptions{},
			func(o *v1.PersistentVolume) string {
				if _, needed := slices.BinarySearch(names, o.Name); needed {
					found[o.Name] = PVOf(o)
				}
				return ""
			})
		return explain.Read[map[string]*PV]{Made: true, Value: found, Err: err}
	}
	for _, name := range names {
		o, err := r.clients.Core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			found[name] = nil
		case err != nil:
			return explain.Failed[map[string]*PV](err)
		default:
			found[name] = PVOf(o)
		}
	}
	return explain.Found(found)
}

// Pod reads the facts about a pod, and about the locks that it waits for. It returns an error if the pod does not
// exist or cannot be read; all other failed reads are part of the facts.
func (r *Reader) Pod(ctx context.Context, namespace, name string) (PodFacts, error) {
	its, err := r.pods.Pod(ctx, namespace, name)
	if err != nil {
		return PodFacts{}, err
	}
	f := PodFacts{Facts: its}
	if p := pods.PodOf(its.Pod); p.Gated && !p.Terminating {
		f.Locks = r.read(ctx, namespace)
		f.Holder = r.holder(ctx, f.waitsForPod)
	}
	return f, nil
}

// Claim reads the facts about the lock of a claim. It reads no more if the claim has no lock and its namespace is not
// known to ask for locks.
func (r *Reader) Claim(ctx context.Context, o *v1.PersistentVolumeClaim) ClaimFacts {
	f := ClaimFacts{Claim: ClaimOf(o)}
	if modes := r.Modes(ctx, o.Namespace); f.Claim.has() || modes.Value[o.Namespace] > singlenode.ModeOff {
		f.Locks = r.read(ctx, o.Namespace)
		if now, found := f.Locks.Value.index().claims[key{o.Namespace, o.Name}]; found && now.UID == o.UID {
			f.Claim = now
		}
		f.Holder = r.holder(ctx, f.holder)
	}
	return f
}

func (r *Reader) read(ctx context.Context, namespace string) explain.Read[Facts] {
	facts, err := r.List(ctx, namespace)
	return explain.Read[Facts]{Made: true, Value: facts, Err: err}
}

// holder reads the pod that another waits for, if it is terminating. The list suffices for any other pod.
func (r *Reader) holder(ctx context.Context, of func() (pods.Pod, bool)) explain.Read[*pods.Facts] {
	p, found := of()
	if !found || !p.Terminating {
		return explain.Read[*pods.Facts]{}
	}
	its, err := r.pods.Pod(ctx, p.Namespace, p.Name)
	switch {
	case apierrors.IsNotFound(err):
		return explain.Found[*pods.Facts](nil)
	case err != nil:
		return explain.Failed[*pods.Facts](err)
	case its.Pod.UID != p.UID:
		return explain.Found[*pods.Facts](nil)
	}
	return explain.Found(&its)
}
