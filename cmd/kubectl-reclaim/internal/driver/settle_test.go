package driver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// leaseServer serves the Leases of in-flight logs.
type leaseServer struct {
	t      *testing.T
	client *fake.Clientset
	patch  func() // called before a PATCH
	// full means that the Leases have no room for another annotation.
	full bool
	dry  bool
	// noClaims means that claims may not be read. claimReads counts the reads of claims.
	noClaims   bool
	claimReads int
	// noPVs means that PVs may not be read. pvReads counts the reads of PVs.
	noPVs   bool
	pvReads int
}

func newLeaseServer(t *testing.T, leases ...runtime.Object) *leaseServer {
	t.Helper()
	s := &leaseServer{t: t, client: fake.NewClientset(leases...)}
	s.client.PrependReactor("create", "leases", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if create, ok := a.(k8stesting.CreateAction); ok {
			if lease, ok := create.GetObject().(*coordinationv1.Lease); ok {
				lease.UID, lease.ResourceVersion = types.UID("uid-of-"+lease.Name), "1"
			}
		}
		return false, nil, nil
	})
	return s
}

// fourVolumes returns the logs of two drivers, with four volumes.
func fourVolumes(t *testing.T) (leases []runtime.Object) {
	t.Helper()
	s := newLeaseServer(t)
	s.open("disk.csi.example.com", 2*time.Hour, "pvc-1", "shop", "fast")
	s.open("disk.csi.example.com", time.Minute, "pvc-2", "shop", "fast")
	s.open("disk.csi.example.com", time.Minute, "pvc-3", "bank", "slow")
	s.open("nfs.csi.example.com", time.Minute, "pvc-4", "shop", "nfs")
	all := must.Get(s.client.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{}))(t)
	for i := range all.Items {
		leases = append(leases, &all.Items[i])
	}
	return leases
}

// open adds a volume to a driver's log.
func (s *leaseServer) open(driver string, age time.Duration, name, namespace, class string) {
	s.t.Helper()
	s.put(inflight.Config{Name: strings.ReplaceAll(driver, ".", "-") + "-in-flight", Driver: driver}, age, namespace,
		inflight.Request{Create: &csi.CreateVolumeRequest{Name: name},
			PV: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1.PersistentVolumeSpec{StorageClassName: class}}})
}

// openOn adds a volume to the log of a node.
func (s *leaseServer) openOn(node, name string) {
	s.t.Helper()
	at := []*csi.Topology{{Segments: map[string]string{"node": node}}}
	s.put(inflight.Config{Name: "local-in-flight-" + node, Driver: "local.csi.example.com", Shards: 1}, time.Hour, "shop",
		inflight.Request{Node: node, PV: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}},
			Create: &csi.CreateVolumeRequest{Name: name,
				AccessibilityRequirements: &csi.TopologyRequirement{Requisite: at, Preferred: at}}})
}

// put adds a volume to a log.
func (s *leaseServer) put(cfg inflight.Config, age time.Duration, namespace string, r inflight.Request) {
	s.t.Helper()
	cfg.Leases, cfg.Namespace, cfg.CreateMissing = s.client.CoordinationV1(), "kube-system", true
	log, err := inflight.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := log.TakeOver(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	err = log.Put(ctx, inflight.Entry{Volume: r.PV.Name, Begun: time.Now().Add(-age),
		Claim:    volume.ClaimRef{Namespace: namespace, Name: "data", UID: types.UID("of-" + r.PV.Name)},
		Requests: []inflight.Request{r}})
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		s.t.Fatal(err)
	}
}

// inFlight returns the volumes in the logs.
func (s *leaseServer) inFlight() (volumes []string) {
	leases, err := s.client.CoordinationV1().Leases("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	entries, problems := inflight.Locate(leases.Items, nil)
	if len(problems) > 0 {
		s.t.Fatal(problems)
	}
	for _, e := range entries {
		volumes = append(volumes, e.Volume)
	}
	slices.Sort(volumes)
	return volumes
}

// annotations returns the keys of the Leases' annotations that begin with one of the prefixes.
func (s *leaseServer) annotations(prefixes ...string) (keys []string) {
	leases, err := s.client.CoordinationV1().Leases("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, lease := range leases.Items {
		for key := range lease.Annotations {
			if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

func (s *leaseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	var err error
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"):
		s.claimReads++
		namespace := strings.Split(r.URL.Path, "/")[4]
		if answer, err = s.client.CoreV1().PersistentVolumeClaims(namespace).List(r.Context(),
			metav1.ListOptions{}); s.noClaims {
			err = apierrors.NewForbidden(v1.Resource("persistentvolumeclaims"), "", nil)
		}
	case r.URL.Path == "/api/v1/persistentvolumes":
		s.pvReads++
		answer, err = s.client.CoreV1().PersistentVolumes().List(r.Context(), metav1.ListOptions{})
		if s.noPVs {
			err = apierrors.NewForbidden(v1.Resource("persistentvolumes"), "", nil)
		}
	case r.Method == http.MethodGet:
		answer, err = s.client.CoordinationV1().Leases("").List(r.Context(), metav1.ListOptions{
			LabelSelector: r.URL.Query().Get("labelSelector")})
	case r.Method == http.MethodPatch:
		if s.patch != nil {
			s.patch()
		}
		body, _ := io.ReadAll(r.Body) // a truncated body is invalid JSON
		name := path.Base(r.URL.Path)
		if s.dry = r.URL.Query().Get("dryRun") == metav1.DryRunAll; s.dry {
			answer, err = s.client.CoordinationV1().Leases("kube-system").Get(r.Context(), name, metav1.GetOptions{})
			break
		}
		answer, err = s.client.CoordinationV1().Leases("kube-system").Patch(r.Context(), name, types.JSONPatchType, body,
			metav1.PatchOptions{})
		if s.full {
			err = apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), name,
				field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 262144)})
		} else if err != nil {
			err = apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), name, nil)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		w.WriteHeader(int(status.Status().Code))
		sent := status.Status()
		sent.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		answer = sent
	}
	_ = json.NewEncoder(w).Encode(answer) // an error means that the client is gone
}

func TestSettleInFullLease(t *testing.T) {
	s := newLeaseServer(t, fourVolumes(t)...)
	s.full = true
	server := httptest.NewServer(s)
	defer server.Close()
	_, err := root.In(t, "", "settle", "pvc-1", "--yes", "--server="+server.URL)
	if err == nil || !strings.Contains(err.Error(), "no room to mark 1 volume") ||
		!strings.Contains(err.Error(), "settle fewer at a time") || strings.Contains(err.Error(), "an entry changed") {
		t.Errorf("settle = %v", err)
	}
}

func TestSettle(t *testing.T) {
	all, leases := []string{"pvc-1", "pvc-2", "pvc-3", "pvc-4"}, fourVolumes(t)
	for sentence, c := range map[string]struct {
		args  []string
		types string // empty means no terminal
		left  []string
		err   string
		want  []string
	}{
		"nothing is chosen": {nil, "y\n", all, "name the volumes to settle", nil},
		"a volume is named": {[]string{"pvc-3"}, "y\n", []string{"pvc-1", "pvc-2", "pvc-4"}, "",
			[]string{"bank/data", "slow", "drops 1 volume from its log", "\nCluster prod-eu (http://127.0.0.1:",
				").\nSettle 1 volume? [y/N]"}},
		"two volumes are named": {[]string{"pvc-1", "pvc-4"}, "y\n", []string{"pvc-2", "pvc-3"}, "",
			[]string{"drops 2 volumes from its log", "120m"}},
		"one is not in flight": {[]string{"pvc-1", "pvc-9"}, "y\n", all, `volume "pvc-9" is not in flight`,
			nil},
		"a namespace": {[]string{"--all"}, "y\n", []string{"pvc-3"}, "",
			[]string{"drops 3 volumes from its log", "look there for these names"}},
		"a class": {[]string{"--storage-class=fast"}, "y\n", []string{"pvc-3", "pvc-4"}, "",
			[]string{"drops 2 volumes from its log"}},
		"old entries": {[]string{"--older-than=1h"}, "y\n", []string{"pvc-2", "pvc-3", "pvc-4"}, "",
			[]string{"drops 1 volume from its log"}},
		"a driver, everywhere": {[]string{"-A", "--all", "--driver=disk.csi.example.com"}, "y\n", []string{"pvc-4"}, "",
			[]string{"drops 3 volumes from its log"}},
		"nothing fits": {[]string{"--storage-class=gold"}, "y\n", all, "",
			[]string{"No such volume is in flight"}},
		"the answer is no":     {[]string{"pvc-1"}, "n\n", all, "not confirmed", []string{"pvc-1"}},
		"there is no terminal": {[]string{"pvc-1"}, "", all, "no terminal", []string{"pvc-1"}},
		"a script": {[]string{"pvc-1", "--yes"}, "", all[1:], "",
			[]string{"drops 1 volume from its log", "\nCluster prod-eu (http://127.0.0.1:"}},
		"a dry run": {[]string{"pvc-1", "--dry-run"}, "", all, "",
			[]string{"would be settled (server dry run)", "\nCluster prod-eu (http://127.0.0.1:"}},
		"names and flags":     {[]string{"pvc-1", "--all"}, "y\n", all, "not both", nil},
		"an age that is none": {[]string{"--older-than=-1h"}, "y\n", all, "must not be negative", nil},
		"a dry run of another way": {[]string{"pvc-1", "--dry-run=client"}, "y\n", all, "--dry-run=client",
			nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newLeaseServer(t, leases...)
			typed := &commandline.Typing{}
			if c.types != "" {
				typed.Text = strings.NewReader(c.types)
			}
			out, err := root.Against(t, s, typed, append([]string{"settle"}, c.args...)...)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%v, want %q", err, c.err)
			}
			explained.Expect(t, out, c.want...)
			if left := s.inFlight(); !slices.Equal(left, c.left) {
				t.Errorf("in flight are %v, want %v\n%s", left, c.left, out)
			}
		})
	}
}

// A changed entry stays, together with the other entries of its Lease.
func TestSettleKeepsChangedEntries(t *testing.T) {
	s := newLeaseServer(t, fourVolumes(t)...)
	s.patch = func() {
		s.patch = nil
		s.open("disk.csi.example.com", time.Second, "pvc-1", "shop", "faster") // another request under the same name
	}
	out, err := root.Against(t, s, &commandline.Typing{Text: strings.NewReader("y\n")}, "settle", "pvc-1")
	if err == nil || !strings.Contains(err.Error(), "changed or is gone since it was shown") || len(s.inFlight()) != 4 {
		t.Errorf("%v, in flight are %v\n%s", err, s.inFlight(), out)
	}
	if left := s.annotations("settle."); len(left) > 0 {
		t.Errorf("settled are %v", left)
	}
}

// The entry of a claim that waits for a volume is followed by another one.
func TestSettleNamesClaimsThatWait(t *testing.T) {
	claim := func(namespace, uid string, change func(*v1.PersistentVolumeClaim)) runtime.Object {
		c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data",
			UID: types.UID(uid)}}
		change(c)
		return c
	}
	for name, c := range map[string]struct {
		claim    runtime.Object
		noClaims bool
		want     string
	}{
		"it waits": {claim("bank", "of-pvc-3", func(*v1.PersistentVolumeClaim) {}), false,
			"unless you delete them first: bank/data."},
		"it is bound": {claim("bank", "of-pvc-3", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }), false, ""},
		"it is terminating": {claim("bank", "of-pvc-3", func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x"}
		}), false, ""},
		"it is another of the name": {claim("bank", "u2", func(*v1.PersistentVolumeClaim) {}), false, ""},
		"it is gone":                {claim("shop", "u2", func(*v1.PersistentVolumeClaim) {}), false, ""},
		"it may not be read": {claim("bank", "of-pvc-3", func(*v1.PersistentVolumeClaim) {}), true,
			"which could not be read: bank/data."},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeaseServer(t, append(fourVolumes(t), c.claim)...)
			s.noClaims = c.noClaims
			out, err := root.Against(t, s, &commandline.Typing{}, "settle", "pvc-3", "--dry-run")
			out = strings.Join(strings.Fields(out), " ")
			if err != nil || c.want != "" && !strings.Contains(out, c.want) ||
				strings.Contains(out, "begins again") != (c.want != "") {
				t.Errorf("%v, want %q in\n%s", err, c.want, out)
			}
		})
	}
}

// A volume that a PV names may be in use. Absence of knowledge about PVs is no absence of PVs.
func TestSettleKeepsVolumesOfPVs(t *testing.T) {
	const look = "only the storage system knows it: look there for "
	for name, c := range map[string]struct {
		pvs   []string
		noPVs bool
		want  []string
	}{
		"none has one": {[]string{"other"}, false, []string{look + "these names first", "!Keep"}},
		"one has one": {[]string{"pvc-1"}, false, []string{"that these PVs name in the storage system: pvc-1.",
			look + "the other names first"}},
		"all have one": {[]string{"pvc-1", "pvc-3-apart-0011aabb"}, false,
			[]string{"storage system: pvc-1, pvc-3-apart-0011aabb.", "!look there"}},
		"another has one": {[]string{"pvc-11", "pvc-2"}, false, []string{look + "these names first", "!Keep"}},
		"PVs may not be read": {[]string{"pvc-1"}, true, []string{"PVs could not be read (",
			"a PV may name any of these volumes", "Keep each in the storage system until you know that no PV names it",
			"!look there"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := fourVolumes(t)
			for _, pv := range c.pvs {
				objects = append(objects, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv}})
			}
			s := newLeaseServer(t, objects...)
			s.noPVs = c.noPVs
			out, err := root.Against(t, s, &commandline.Typing{}, "settle", "pvc-1", "pvc-3", "--dry-run")
			if err != nil {
				t.Error(err)
			}
			explained.Expect(t, strings.Join(strings.Fields(out), " "), c.want...)
			if s.pvReads != 1 {
				t.Errorf("%d reads of PVs", s.pvReads)
			}
		})
	}
}

// Two nodes can each have a volume of one name, of which only one gets the PV of that name.
func TestSettleLooksOnNodeOfEntry(t *testing.T) {
	const look = "look on node a for another one named pvc-1 first"
	at := func(name, node string) runtime.Object {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: "node", Operator: v1.NodeSelectorOpIn,
					Values: []string{node}}}}}}}}}
	}
	for name, c := range map[string]struct {
		nodes []string
		pvs   []runtime.Object
		want  []string
	}{
		"another node's volume has a PV": {[]string{"a"}, []runtime.Object{at("pvc-1", "b")}, []string{
			"Keep the volumes that these PVs name in the storage system: pvc-1.",
			"PV pvc-1 names the volume at node=b: " + look, "!look there"}},
		"its volume has a PV": {[]string{"a"}, []runtime.Object{at("pvc-1", "a")}, []string{
			"storage system: pvc-1.", "!look"}},
		"both have a PV": {[]string{"a"}, []runtime.Object{at("pvc-1", "b"), at("pvc-1-apart-0011aabb", "a")}, []string{
			"storage system: pvc-1, pvc-1-apart-0011aabb.", "!look"}},
		"both are in flight, and one has a PV": {[]string{"a", "b"}, []runtime.Object{at("pvc-1", "b")}, []string{
			"gives up 2 volumes", "PV pvc-1 names the volume at node=b: " + look, "!look on node b", "!look there"}},
		"both are in flight, without a PV": {[]string{"a", "b"}, nil, []string{"look there for these names", "!look on"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeaseServer(t, c.pvs...)
			for _, node := range c.nodes {
				s.openOn(node, "pvc-1")
			}
			out, err := root.Against(t, s, &commandline.Typing{}, "settle", "pvc-1", "--dry-run")
			if err != nil {
				t.Error(err)
			}
			explained.Expect(t, strings.Join(strings.Fields(out), " "), c.want...)
		})
	}
}

// An entry that cannot be read is not an entry that does not exist.
func TestSettleNamesUnreadableEntries(t *testing.T) {
	leases := fourVolumes(t)
	for _, o := range leases {
		lease, is := o.(*coordinationv1.Lease)
		if !is {
			t.Fatalf("%T", o)
		}
		for key := range lease.Annotations {
			if strings.Contains(key, "in-flight.") {
				lease.Annotations[key] = "{"
			}
		}
	}
	out, err := root.Against(t, newLeaseServer(t, leases...), &commandline.Typing{}, "settle", "-A", "--all")
	if err != nil || !strings.Contains(out, "Part of the in-flight log is not read: ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Hundreds of entries may be chosen, also of several claims with one name.
func TestSettleReadsClaimsOnceInEachNamespace(t *testing.T) {
	s := newLeaseServer(t, fourVolumes(t)...)
	s.noClaims = true
	out, err := root.Against(t, s, &commandline.Typing{}, "settle", "-A", "--all", "--dry-run")
	if want := "which could not be read: bank/data, shop/data."; err != nil ||
		!strings.Contains(strings.Join(strings.Fields(out), " "), want) {
		t.Errorf("%v, want %q in\n%s", err, want, out)
	}
	if s.claimReads != 2 {
		t.Errorf("%d reads of claims in 2 namespaces", s.claimReads)
	}
}

// The next leader of csi-reclaimer drops the settled entries.
func TestSettledEntriesLeaveTheLog(t *testing.T) {
	s := newLeaseServer(t, fourVolumes(t)...)
	if out, err := root.Against(t, s, &commandline.Typing{}, "settle", "pvc-1", "pvc-3", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if asked := s.annotations("settle."); len(asked) != 2 || len(s.annotations("in-flight.")) != 4 {
		t.Errorf("asked for are %v", asked)
	}
	s.open("disk.csi.example.com", 0, "pvc-5", "shop", "fast")
	left := s.annotations("settle.", "in-flight.")
	if want := []string{"in-flight.csi-reclaimer.io/pvc-2", "in-flight.csi-reclaimer.io/pvc-4",
		"in-flight.csi-reclaimer.io/pvc-5"}; !slices.Equal(left, want) {
		t.Errorf("left are %v", left)
	}
}
