package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

var root = commandline.Root(cli.Root(Commands))

func TestPrintReleasePlan(t *testing.T) {
	p := volumes.Plan{Driver: "d", Role: "owner", Abandoned: []string{"pv-0"}, Obstacles: []string{"stop it"},
		Unread: []string{"Leases"}, InFlight: []explain.InFlight{{Volume: "pvc-1", Claim: "shop/\x1b[2Jdata"}}}
	for i := range 12 {
		p.PVs = append(p.PVs, fmt.Sprintf("pv-%d", i))
	}
	var out bytes.Buffer
	must.OK(t, writePlan(&out, p))
	explained.Expect(t, out.String(), "12 PVs of d", "  pv-9\n  and 2 more\n", "PV pv-0 is terminating", "\n! stop it",
		"Not read: Leases", "for claim shop/^[[2Jdata", "!\x1b")
}

// policyServer serves an admission policy that lists a driver without PVs.
type policyServer struct {
	commandline.Server
	denied string // is a verb that the user may not use
	patch  bool   // the policy was changed
}

func (s *policyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path.Base(path.Dir(r.URL.Path)) + "/" + path.Base(r.URL.Path) {
	case "v1/selfsubjectaccessreviews":
		body, _ := io.ReadAll(r.Body)
		var review authorizationv1.SelfSubjectAccessReview
		err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, &review)
		review.Status.Allowed = err == nil && review.Spec.ResourceAttributes.Verb != s.denied
		commandline.Answer(w, review)
	case "mutatingadmissionpolicies/" + admission.PolicyName:
		s.patch = s.patch || r.Method == http.MethodPatch
		commandline.Answer(w, admission.Policy(volume.RoleOwner, commandline.Driver))
	case "mutatingadmissionpolicybindings/" + admission.PolicyName:
		commandline.Answer(w, admission.Binding(volume.RoleOwner))
	default:
		s.Server.ServeHTTP(w, r)
	}
}

// release returns the standard output and the errors of a release by this server's user.
func (s *policyServer) release(t *testing.T) (out, errOut string, err error) {
	t.Helper()
	s.Add("csidrivers", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: commandline.Driver}})
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	cmd := root(streams, func(any) bool { return false })
	cmd.SetArgs([]string{"release", "--driver=" + commandline.Driver, "--role=owner", "--yes", "-o", "json",
		commandline.Kubeconfig(t, server.URL)})
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// Without the permission to release PVs, the policy still protects the driver's PVs.
func TestReleaseChecksPermissionsBeforePolicies(t *testing.T) {
	t.Parallel()
	s := &policyServer{denied: "patch"}
	_, _, err := s.release(t)
	if err == nil || !strings.Contains(err.Error(), "you may not patch persistentvolumes") || s.patch {
		t.Errorf("%v, and the policy was changed: %v", err, s.patch)
	}
}

// A program reads the plan from standard output, and nothing else.
func TestReleasePrintsOneObject(t *testing.T) {
	t.Parallel()
	s := &policyServer{}
	out, errOut, err := s.release(t)
	var plan volumes.Plan
	if err := errors.Join(err, json.Unmarshal([]byte(out), &plan)); err != nil || len(plan.ListedBy) != 1 || !s.patch {
		t.Errorf("%v, %+v in\n%s", err, plan, out)
	}
	explained.Expect(t, errOut, "was removed from mutatingadmissionpolicy/", "0 PVs were released")
}

func TestReleaseNamesCluster(t *testing.T) {
	t.Parallel()
	const cluster = "\nCluster prod-eu (http://127.0.0.1:"
	for _, c := range []struct {
		flag string
		err  error
		want []string
	}{
		{"--workers=1", cli.ErrNotConfirmed, []string{cluster, ").\nRelease 2 PVs of " + commandline.Driver + "? [y/N]"}},
		{"--dry-run", nil, []string{cluster, "!Release 2 PVs"}},
	} {
		out, err := root.Against(t, commandline.SomethingWaits(t), &commandline.Typing{Text: strings.NewReader("n\n")},
			"release", "--role=owner", "--driver="+commandline.Driver, c.flag)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.flag, err, c.err)
		}
		explained.Expect(t, out, c.want...)
	}
}

func TestReleaseNamesWayOut(t *testing.T) {
	t.Parallel()
	err := inFlight(volumes.Plan{Driver: "d", InFlight: []explain.InFlight{{Volume: "pvc-1"}}})
	if err == nil || !strings.Contains(err.Error(), inflight.ToSettle) || inFlight(volumes.Plan{}) != nil {
		t.Error(err)
	}
}

func TestReleaseWithoutPVsFailsAtObstacle(t *testing.T) {
	t.Parallel()
	begins, err := begin(volumes.Plan{Driver: "d", Obstacles: []string{"part of the log cannot be read"}})
	if begins || err == nil || !strings.Contains(err.Error(), "part of the log cannot be read") {
		t.Errorf("%v, %v", begins, err)
	}
	if begins, err := begin(volumes.Plan{Driver: "d"}); begins || err != nil {
		t.Errorf("nothing to release: %v, %v", begins, err)
	}
	if begins, err := begin(volumes.Plan{Driver: "d", PVs: []string{"pv"}}); !begins || err != nil {
		t.Errorf("a PV to release: %v, %v", begins, err)
	}
}

// The question may stay open while a process begins to act for the driver, or a PV is deleted.
func TestReleasePlansAgainAfterQuestion(t *testing.T) {
	t.Parallel()
	shown := volumes.Plan{Driver: "d", PVs: []string{"a", "b", "c"}, Abandoned: []string{"a"}}
	for name, c := range map[string]struct {
		now  volumes.Plan
		says string
	}{
		"nothing has changed": {shown, ""},
		"a PV is released":    {volumes.Plan{Driver: "d", PVs: []string{"a"}}, ""},
		"all PVs are gone":    {volumes.Plan{Driver: "d"}, ""},
		"a process holds the Lease": {
			volumes.Plan{Driver: "d", PVs: shown.PVs, Obstacles: []string{"stop csi-reclaimer"}}, "stop csi-reclaimer"},
		"another PV is terminating": {volumes.Plan{Driver: "d", PVs: shown.PVs, Abandoned: []string{"a", "c"}}, "PV c"},
	} {
		err := since(shown, c.now)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out)
	for i := range 40 {
		b.show(i, min(i, 1), 41)
	}
	b.show(40, 1, 41)
	b.end()
	if lines := strings.Count(out.String(), "\n"); lines != 11 || !strings.HasSuffix(out.String(),
		"40 of 41 released, 1 failed\n") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	out.Reset()
	b = &bar{w: &out, redraw: true, drawn: -1}
	b.show(1, 0, 2)
	b.show(1, 0, 2)
	b.show(2, 0, 2)
	b.end()
	want := "\r[" + strings.Repeat("#", 20) + strings.Repeat(".", 20) + "] 1 of 2 released\r[" +
		strings.Repeat("#", 40) + "] 2 of 2 released\n"
	if out.String() != want {
		t.Errorf("drawn %q", out.String())
	}
}
