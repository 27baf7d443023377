package driver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// reported is a report with one suspect and one other volume.
func reported(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(leaks.Report{
		Driver: "d.example.com", Completed: time.Now(), Listed: 5, Suspected: 1, SuspectedBytes: 1 << 30,
		Volumes: []leaks.Found{
			{Handle: "vol-1", Bytes: 1 << 30, Suspected: true, Reason: leaks.ReasonLeakSuspected, Sightings: 3,
				FirstSeen: time.Now()},
			{Handle: "vol-2", Reason: leaks.ReasonBeingMade, Because: "claim ns/data"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// apiServer serves these PVs, the Leases in holders, and the report of pod ns/leads. It appends each request to asked.
// The key of a holder is the Lease's name in namespace ns, or NAMESPACE/NAME. The name "node" stands for a label.
func apiServer(t *testing.T, holders map[string]string, asked *[]string, pvs ...*v1.PersistentVolume) string {
	t.Helper()
	report, of, all := reported(t), map[string]string{}, []string{}
	for _, pv := range pvs {
		text := must.Get(json.Marshal(pv))(t)
		of[pv.Name] = string(text)
		all = append(all, string(text))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.RequestURI())
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/leases"):
			_, name, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
			if r.URL.Query().Get("labelSelector") == "csi-reclaimer.io/driver=d.example.com" {
				name = "node"
			}
			var items []string
			for _, of := range slices.Sorted(maps.Keys(holders)) {
				if path.Base(of) == name {
					items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q},"spec":{"holderIdentity":%q,`+
						`"leaseDurationSeconds":15,"renewTime":%q}}`, name, cmp.Or(strings.Trim(path.Dir(of), "."), "ns"), holders[of],
						time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
				}
			}
			fmt.Fprintf(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"LeaseList","metadata":{},"items":[%s]}`,
				strings.Join(items, ","))
		case r.URL.Path == "/api/v1/namespaces/ns/pods/leads:8080/proxy/leaks":
			fmt.Fprint(w, report)
		case r.URL.Path == "/api/v1/namespaces/ns/pods/locked:8080/proxy/leaks": // a sidecar with --http-authorization
			http.Error(w, "unauthorized: a token is required", http.StatusUnauthorized)
		case r.URL.Path == "/api/v1/persistentvolumes" && r.Method == http.MethodGet:
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"PersistentVolumeList","metadata":{},"items":[`+strings.Join(all, ",")+`]}`)
		case r.URL.Path == "/apis/storage.k8s.io/v1/volumeattachments":
			fmt.Fprint(w, `{"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachmentList","metadata":{},"items":[]}`)
		case of[path.Base(r.URL.Path)] != "" && r.Method == http.MethodGet:
			fmt.Fprint(w, of[path.Base(r.URL.Path)])
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestReportSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	must.OK(t, os.WriteFile(file, []byte(reported(t)), 0o600))
	nobody, leads := map[string]string{}, map[string]string{"d-example-com": leadership.NewIdentity("leads")}
	for sentence, c := range map[string]struct {
		holders map[string]string
		input   string
		args    []string
		wrong   string
	}{
		"a file":             {args: []string{"--from=" + file}},
		"the input":          {input: reported(t), args: []string{"--from=-", "--driver=d.example.com"}},
		"the pod that leads": {holders: leads, args: []string{"--driver=d.example.com"}},
		"the one beside another": {holders: map[string]string{"d-example-com": "provisioner",
			"d-example-com-reclaimer": "leads"}, args: []string{"--driver=d.example.com"}},
		"a pod that is named":    {holders: nobody, args: []string{"--driver=d.example.com", "--pod=ns/leads"}},
		"a pod on the only node": {holders: map[string]string{"node": "leads"}, args: []string{"--driver=d.example.com"}},
		"pods on two nodes": {holders: map[string]string{"node": "leads", "other/node": "leads"},
			args: []string{"--driver=d.example.com"}, wrong: "several pods hold Leases of d.example.com: ns/leads, other/leads"},
		"a Lease in another namespace, too": {holders: map[string]string{"d-example-com": "leads",
			"other/d-example-com": "me"}, args: []string{"--driver=d.example.com"},
			wrong: "several pods hold Leases of d.example.com: ns/leads, other/me"},
		"no leader": {holders: nobody, args: []string{"--driver=d.example.com"},
			wrong: "no pod holds Lease d-example-com"},
		"a pod without a report": {holders: nobody, args: []string{"--driver=d.example.com", "--pod=ns/other"},
			wrong: "serves no /leaks on port 8080"},
		"a pod that requires a token": {holders: nobody, args: []string{"--driver=d.example.com", "--pod=ns/locked"},
			wrong: "through kubectl port-forward, and read it with --from=-"},
		"a report of something else": {holders: leads, args: []string{"--driver=other", "--pod=ns/leads"},
			wrong: "about driver d.example.com, not other"},
		"an input that is no report": {input: "<html>", args: []string{"--from=-"}, wrong: "it is not a leak report"},
		"a file and a pod":           {args: []string{"--from=" + file, "--pod=ns/leads"}, wrong: "[from pod]"},
		"a port without a listener": {holders: leads, args: []string{"--driver=d.example.com", "--port=81"},
			wrong: "\nnext: check that csi-reclaimer runs there with --leak-check-interval"},
	} {
		var asked []string
		said, err := root.In(t, c.input,
			append([]string{"leaks", "--server=" + apiServer(t, c.holders, &asked)}, c.args...)...)
		switch {
		case c.wrong != "" && (err == nil || !strings.Contains(cli.ErrorText(err), c.wrong)):
			t.Errorf("%s: %v, want %q", sentence, err, c.wrong)
		case c.wrong == "" && (err != nil || !strings.Contains(said, "vol-1") || strings.Contains(said, "vol-2")):
			t.Errorf("%s: %v\n%s\n%q", sentence, err, said, asked)
		}
	}
}

func TestPrintLeakReport(t *testing.T) {
	for format, want := range map[string][]string{
		"table": {"1 volume of driver d.example.com is suspected to be a leak", "HANDLE", "1 more have no PV"},
		"wide":  {"vol-2", "claim ns/data"},
		"json":  {`"kind": "LeakReport"`, `"handle": "vol-1"`},
		"yaml":  {"kind: LeakReport", "handle: vol-1"},
		"csv":   {"driver,handle,bytes", "d.example.com,vol-1,1073741824,true,LeakSuspected,3,"},
	} {
		said, err := root.In(t, reported(t), "leaks", "--from=-", "-o", format)
		if err != nil {
			t.Errorf("%s: %v", format, err)
		}
		explained.Expect(t, said, want...)
	}
}

// The command only reads from the API server.
func TestRemedyNeedsConfirmation(t *testing.T) {
	for sentence, c := range map[string]struct {
		args        []string
		said, wrong string
	}{
		"not confirmed": {[]string{"--reclaim=vol-1"}, ").\nDelete volume \"vol-1\"? [y/N]", "not confirmed"},
		"only shown": {[]string{"--reclaim=vol-1", "--dry-run"},
			"persistentVolumeReclaimPolicy: Retain", ""},
		"only shown, to a program": {[]string{"--adopt=vol-1", "--dry-run", "-o", "json"}, `"volumeHandle": "vol-1"`,
			""},
		"adopted, and not confirmed": {[]string{"--adopt=vol-1"}, ").\nCreate this PV", "not confirmed"},
		"adopted, by the flags": {[]string{"--adopt=vol-1", "--dry-run", "--size=7Gi", "--storage-class=fast",
			"--claim=shop/data", "--attribute=share=x"}, "storage: 7Gi", ""},
		"adopted for a claim, shown": {[]string{"--adopt=vol-1", "--dry-run", "--claim=shop/data"},
			"  claimRef:\n    apiVersion: v1\n    kind: PersistentVolumeClaim\n    name: data\n    namespace: shop\n", ""},
		"adopted for a claim, and not confirmed": {[]string{"--adopt=vol-1", "--storage-class=fast", "--claim=shop/data"},
			"reserved for claim shop/data? [y/N]", "not confirmed"},
		"adopted for any claim of a class": {[]string{"--adopt=vol-1", "--dry-run", "--storage-class=fast"}, "",
			"--claim is missing: with --storage-class=fast, the next claim of the class, in any namespace, would get"},
		"no suspect, despite --yes": {[]string{"--reclaim=vol-2", "--yes"}, "", "it is no suspect: MayBeBeingMade"},
		"adopt: no suspect":         {[]string{"--adopt=vol-2", "--yes", "--size=1Gi"}, "", "it is no suspect"},
		"unknown, despite --yes":    {[]string{"--reclaim=vol-3", "--yes"}, "", "has no volume of that name"},
		"adopt: unknown":            {[]string{"--adopt=vol-3", "--yes"}, "", "has no volume of that name"},
		"adopt: unknown, but for a size": {[]string{"--adopt=vol-3", "--yes", "--size=1Gi"}, "",
			"has no volume of that name"},
	} {
		var asked []string
		said, err := root.In(t, "", append([]string{"leaks", "--driver=d.example.com", "--pod=ns/leads",
			commandline.Kubeconfig(t, apiServer(t, nil, &asked))}, c.args...)...)
		shown := c.wrong == "" || c.wrong == "not confirmed"
		if strings.Contains(said, "\nCluster "+commandline.ClusterContext+" (http://127.0.0.1:") != shown {
			t.Errorf("%s: it names the cluster: %v\n%s", sentence, !shown, said)
		}
		if !strings.Contains(said, c.said) || (err == nil) != (c.wrong == "") || err != nil &&
			!strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q\n%s", sentence, err, c.wrong, said)
		}
		for _, request := range asked {
			if !strings.HasPrefix(request, "GET ") {
				t.Errorf("%s: %s", sentence, request)
			}
		}
	}
}

// A PV that an earlier run made for any claim, or for another claim, is not reserved. Only one that is free and has
// policy Retain may be deleted.
func TestAdoptedPVIsNotReserved(t *testing.T) {
	adopt := func() *v1.PersistentVolume {
		pv := must.Get(leaks.AdoptPV("d.example.com", leaks.Found{Handle: "vol-9", Bytes: 5 << 30}, leaks.PVOptions{}))(t)
		pv.Status.Phase = v1.VolumeAvailable
		return pv
	}
	free, used := adopt(), adopt()
	used.Status.Phase = v1.VolumeBound
	used.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
	used.Spec.ClaimRef = &v1.ObjectReference{Namespace: "a", Name: "data", UID: "u"}
	for want, pv := range map[string]*v1.PersistentVolume{
		"is not reserved for this claim: delete the PV":                           free,
		"see kubectl reclaim explain pv/" + used.Name + ", whose claim is a/data": used,
	} {
		var asked []string
		said, err := root.In(t, "", "leaks", "--driver=d.example.com", "--pod=ns/leads", "--adopt=vol-9",
			"--claim=shop/data", "--yes", "--server="+apiServer(t, nil, &asked, pv))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(said, "keeps the volume") ||
			strings.Contains(err.Error(), "delete the PV") != (pv == free) ||
			strings.Contains(err.Error(), "(pv/"+pv.Name+")") != (pv == free) {
			t.Errorf("%v\n%s", err, said)
		}
	}
}

// A program reads the PV from standard output, and nothing else.
func TestRemedyPrintsOneObject(t *testing.T) {
	adopted := must.Get(leaks.AdoptPV("d.example.com", leaks.Found{Handle: "vol-9", Bytes: 5 << 30}, leaks.PVOptions{}))(t)
	turned := leaks.ReclaimPV("d.example.com", leaks.Found{Handle: "vol-8"}, leaks.PVOptions{})
	turned.Spec.PersistentVolumeReclaimPolicy, turned.Status.Phase = v1.PersistentVolumeReclaimDelete, v1.VolumeReleased
	for arg, want := range map[string]string{"--adopt=vol-9": adopted.Name, "--reclaim=vol-8": turned.Name} {
		var asked []string
		out := must.Get(root.Run(t, "leaks", "--driver=d.example.com", "--pod=ns/leads", "--yes", "-o", "json", arg,
			commandline.Kubeconfig(t, apiServer(t, nil, &asked, adopted, turned))))(t)
		var pv v1.PersistentVolume
		if err := json.Unmarshal([]byte(out), &pv); err != nil || pv.Name != want {
			t.Errorf("%s: %v in\n%s", arg, err, out)
		}
	}
}

// The command reports the result of an earlier run without a question, because a person may not know whether that run
// finished.
func TestFinishedRemedyIsReported(t *testing.T) {
	adopted := must.Get(leaks.AdoptPV("d.example.com", leaks.Found{Handle: "vol-9", Bytes: 5 << 30}, leaks.PVOptions{}))(t)
	reserved := must.Get(leaks.AdoptPV("d.example.com", leaks.Found{Handle: "vol-7", Bytes: 5 << 30}, leaks.PVOptions{
		StorageClass: "fast", Claim: types.NamespacedName{Namespace: "shop", Name: "data"}}))(t)
	reserved.Spec.ClaimRef.UID = "bound"
	given := must.Get(leaks.AdoptPV("d.example.com", leaks.Found{Handle: "vol-6", Bytes: 5 << 30}, leaks.PVOptions{}))(t)
	given.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
	given.Spec.ClaimRef = &v1.ObjectReference{Namespace: "a", Name: "data", UID: "bound"}
	turned := leaks.ReclaimPV("d.example.com", leaks.Found{Handle: "vol-8"}, leaks.PVOptions{})
	turned.Spec.PersistentVolumeReclaimPolicy, turned.Status.Phase = v1.PersistentVolumeReclaimDelete, v1.VolumeReleased
	for arg, want := range map[string][]string{
		"--adopt=vol-9": {"kind: PersistentVolume", "storage: 5Gi", "PV " + adopted.Name +
			" keeps the volume. A claim binds"},
		"--adopt=vol-7 --storage-class=fast --claim=shop/data": {"storage: 5Gi", "PV " + reserved.Name +
			" keeps the volume for claim shop/data alone. The claim binds to it with spec.volumeName: " + reserved.Name},
		"--adopt=vol-6": {"PV " + given.Name + " has policy Delete now: its volume is not kept after its claim. To keep " +
			"it: kubectl patch pv " + given.Name, "!keeps the volume"},
		"--reclaim=vol-8": {"persistentVolumeReclaimPolicy: Delete", "PV " + turned.Name + " is Released with policy Delete"},
	} {
		var asked []string
		said, err := root.In(t, "", append([]string{"leaks", "--driver=d.example.com", "--pod=ns/leads",
			"--server=" + apiServer(t, nil, &asked, adopted, reserved, given, turned)}, strings.Fields(arg)...)...)
		if err != nil || strings.Contains(said, "[y/N]") {
			t.Errorf("%s: %v\n%s", arg, err, said)
		}
		explained.Expect(t, said, want...)
		for _, request := range asked {
			if !strings.HasPrefix(request, "GET ") {
				t.Errorf("%s: %s", arg, request)
			}
		}
	}
}
