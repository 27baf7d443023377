//go:build unix

package volumeguard

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestWebPageAndPermissions runs volume-guard without the page, and then with metrics and page behind the
// authorization. It exercises the page with the shipped RBAC.
func TestWebPageAndPermissions(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newWithControlPlane(t, controlplane.Newest, controlplane.Options{})
	added, err := rbac.GrantGuardWeb(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName)
	env.Must(err)
	g := env.Start("--controllers=-intree,pv-protection", "--dry-run")
	expect(env, g, "", map[string]int{"/web/": 404, "/web": 404, "/web/api/list": 404, "/metrics": 200, "/readyz": 200})
	env.Must(g.Terminate())

	// No controller reads objects, so the page uses all permissions that the webhooks do not.
	g = env.Start("--controllers=-intree", "--webhook-address="+suite.FreeAddress(t), "--dry-run", "--web",
		"--http-authorization")
	nobody, viewer, prometheus := env.token("nobody"), env.token("viewer"), env.token("prometheus")
	env.Must(rbac.GrantHTTP(env.Ctx, env.Client, "volume-guard-web-viewer", env.Namespace, "viewer"))
	env.Must(rbac.GrantHTTP(env.Ctx, env.Client, "csi-reclaimer-metrics-reader", env.Namespace, "prometheus"))
	for token, want := range map[string]map[string]int{
		"": {"/web/": 401, "/web/app/main.js": 401, "/web/api/list": 401, "/metrics": 401, "/readyz": 200,
			"/healthz": 200},
		"invented": {"/web/": 401, "/web/api/list": 401, "/metrics": 401, "/healthz/leader-election": 200},
		nobody:     {"/web/": 403, "/web/api/list": 403, "/web/api/object/pv/-/x": 403, "/metrics": 403, "/readyz": 200},
		viewer:     {"/web/": 200, "/web/app/main.js": 200, "/web/none": 404, "/metrics": 403},
		prometheus: {"/web/": 403, "/metrics": 200, "/debug/pprof/": 404},
	} {
		expect(env, g, token, want)
	}
	env.usePage(g, viewer)
	log, err := g.Log()
	env.Must(err)
	for _, token := range []string{nobody, viewer, prometheus} {
		if strings.Contains(log, token) {
			t.Error("a token is in the log")
		}
	}
	env.Must(g.Terminate()) // with the page's caches, and streams that ended
	env.ExpectAllRulesUsed(added)
}

// token returns a token of a new service account.
func (env *environment) token(account string) string {
	env.T.Helper()
	config, err := env.Plane.ServiceAccount(env.Ctx, env.Namespace, account)
	env.Must(err)
	return config.BearerToken
}

// fetch sends a request with a token, unless it is empty.
func (env *environment) fetch(ctx context.Context, g *program.Program, token, path string) *http.Response {
	env.T.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Address()+path, http.NoBody)
	env.Must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	env.Must(err)
	return answer
}

// expect checks the status of paths.
func expect(env *environment, g *program.Program, token string, want map[string]int) {
	env.T.Helper()
	for path, status := range want {
		answer := env.fetch(env.WithTimeout(), g, token, path)
		env.Must(answer.Body.Close())
		if answer.StatusCode != status {
			env.T.Errorf("%s with token %.8q is answered with %s, want %d", path, token, answer.Status, status)
		}
	}
}

// usePage opens the tables, and each kind of page, with the objects that they explain.
func (env *environment) usePage(g *program.Program, token string) {
	env.T.Helper()
	env.Nodes().Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	env.ApplyManifest("node-fencing-crd.yaml")
	env.CreateAdmissionPolicy(admission.Policy(volume.RoleOwner, "other.csi.example.com"))
	vol := env.MakeVolume(objects.Spec{Handle: "none"})
	pod := env.CreatePod(objects.PodSpec{Name: "user", Claims: []string{vol.ClaimName}, Node: "node"})
	gated := env.CreatePod(objects.PodSpec{Name: "gated", Claims: []string{vol.ClaimName},
		Change: func(pod *v1.Pod) { pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: podsafety.Gate}} }})
	ofSet := env.CreateClaim("none", func(spec *objects.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Name, c.GenerateName = "data-web-0", "" }
	})
	list := env.follow(g, token, "list")
	list.until(`"pv/` + vol.Name + `"`)
	for _, object := range []string{"pv/-/" + vol.Name, "claim/" + env.Namespace + "/" + vol.ClaimName,
		"claim/" + env.Namespace + "/" + ofSet.Name, "pod/" + env.Namespace + "/" + pod.Name,
		"pod/" + env.Namespace + "/" + gated.Name, "node/-/node"} {
		env.follow(g, token, "object/"+object).until(`"explanation":{`)
	}
	// A stream that is open when the program ends does not keep it.
}

// followed is a stream of the page.
type followed struct {
	env   *environment
	path  string
	lines *bufio.Scanner
}

func (env *environment) follow(g *program.Program, token, path string) *followed {
	env.T.Helper()
	answer := env.fetch(env.WithTimeout(), g, token, "/web/api/"+path)
	env.T.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		env.T.Fatalf("%s is answered with %s", path, answer.Status)
	}
	f := &followed{env: env, path: path, lines: bufio.NewScanner(answer.Body)}
	f.lines.Buffer(nil, 1<<24)
	return f
}

// until reads until a line has the text.
func (f *followed) until(text string) {
	f.env.T.Helper()
	for f.lines.Scan() {
		if strings.Contains(f.lines.Text(), text) {
			return
		}
	}
	f.env.T.Fatalf("%s has never %s: %v", f.path, text, f.lines.Err())
}
