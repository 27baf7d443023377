package admission

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// reviewOf returns the body of a review of a new pod with this JSON.
func reviewOf(pod string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"review","operation":"CREATE",` +
		`"resource":{"version":"v1","resource":"pods"},"object":` + pod + `}}`
}

// The largest pods that etcd stores have as many claims.
func TestLargePodIsHeldAndGated(t *testing.T) {
	large := pod()
	large.Spec.NodeName = ""
	fields := map[string]any{}
	for i := range 10_000 {
		name := fmt.Sprintf("claim-%d", i)
		large.Spec.Volumes = append(large.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		fields[fmt.Sprintf("k:{\"name\":%q}", name)] = map[string]any{".": struct{}{}, "f:name": struct{}{},
			"f:persistentVolumeClaim": map[string]any{".": struct{}{}, "f:claimName": struct{}{}}}
	}
	managed, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	large.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(string(managed))}}
	asked := request("pods", "", large)
	asked.Operation = admissionv1.Create
	for _, path := range []string{pathPodHold, pathPodGate} {
		if got := send(t, handler(cluster{}), path, asked); !got.Allowed || got.Patch == nil {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestReviewOfTooManyValues(t *testing.T) {
	const list = `{"spec":{"volumes":[{}%s]}}`
	around := text.Commas([]byte(reviewOf("{}")))
	most := reviewOf(fmt.Sprintf(list, strings.Repeat(",{}", maxCommas-around)))
	more := reviewOf(fmt.Sprintf(list, strings.Repeat(",{}", maxCommas-around+1)))
	for _, path := range []string{pathPVs, pathPods, pathPodHold, pathPodGate} {
		code, answer := post(handler(cluster{}), http.MethodPost, path, "application/json", strings.NewReader(most))
		if code != http.StatusOK {
			t.Errorf("at most at %s: %d: %s", path, code, answer)
		}
		code, answer = post(handler(cluster{}), http.MethodPost, path, "application/json", strings.NewReader(more))
		if code != http.StatusRequestEntityTooLarge || !strings.Contains(string(answer), "values") {
			t.Errorf("one more at %s: %d: %s", path, code, answer)
		}
	}
}

func TestDecodedPodHasOnlyVolumesOfClaims(t *testing.T) {
	got, err := decodePod([]byte(`{"spec":{"containers":[{},{}],"volumes":[{},{"name":"a","emptyDir":{}},
		{"name":"b","persistentVolumeClaim":{"claimName":"c"}},{"name":"d","ephemeral":{"volumeClaimTemplate":{}}}]}}`))
	if err != nil || len(got.Spec.Containers) > 0 || len(got.Spec.Volumes) != 2 || cap(got.Spec.Volumes) != 2 ||
		got.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "c" || got.Spec.Volumes[1].Ephemeral == nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// slow is a Reader whose reads take this long, but no longer than their context.
type slow struct {
	cluster
	takes time.Duration
}

func (s slow) Claim(ctx context.Context, _, _ string) (*v1.PersistentVolumeClaim, bool, error) {
	select {
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-time.After(s.takes):
		return nil, false, nil
	}
}

// Requests of one size wait for their turn while as many are decoded, the large ones of all webhooks together.
func TestReviewsInProgressAreBounded(t *testing.T) {
	pv := strings.Replace(reviewOf("{}%s"), `"resource":"pods"`, `"resource":"persistentvolumes"`, 1)
	padding := strings.Repeat(" ", smallBody)
	type body struct{ pv, pod string }
	small, large := body{fmt.Sprintf(pv, ""), reviewOf("{}")}, body{fmt.Sprintf(pv, padding), reviewOf("{}" + padding)}
	for what, c := range map[string]struct {
		sent, other body
		bound       int
		// elsewhere is the answer of another webhook to a request of this size.
		elsewhere int
	}{
		"small ones": {small, large, smallReviews, http.StatusOK},
		"large ones": {large, small, largeReviews, http.StatusTooManyRequests},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				decoded := make(chan struct{})
				h := Handler(func() Drivers { <-decoded; return known }, cluster{})
				expect := func(name string, want int, path, body string) {
					code, answer := post(h, http.MethodPost, path, "application/json", strings.NewReader(body))
					if code != want {
						t.Errorf("%s: %d: %s", name, code, answer)
					}
				}
				var all sync.WaitGroup
				for range c.bound {
					all.Go(func() { expect("in its turn", http.StatusOK, pathPVs, c.sent.pv) })
				}
				synctest.Wait()
				r := httptest.NewRequest(http.MethodPost, pathPVs, strings.NewReader(c.sent.pv))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
					t.Errorf("one more: %d: %s", w.Code, w.Body)
				}
				expect("another webhook", c.elsewhere, pathPodHold, c.sent.pod)
				all.Go(func() { expect("one of the other size", http.StatusOK, pathPVs, c.other.pv) })
				synctest.Wait()
				close(decoded)
				all.Wait()
				expect("after the end of the others", http.StatusOK, pathPVs, c.sent.pv)
			})
		})
	}
}

// Slow reads for bindings delay neither other webhooks nor the decoding of requests, whatever their size.
func TestReadingReviewsHaveTurnsOfTheirOwn(t *testing.T) {
	const named = `{"spec":{"nodeName":"a","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}%s}`
	small, large := reviewOf(fmt.Sprintf(named, "")), reviewOf(fmt.Sprintf(named, strings.Repeat(" ", smallBody)))
	synctest.Test(t, func(t *testing.T) {
		h := Handler(nil, slow{takes: time.Hour})
		var all sync.WaitGroup
		for i := range readingReviews {
			all.Go(func() {
				body := []string{small, large}[i%2]
				if code, answer := post(h, http.MethodPost, pathPods, "application/json",
					strings.NewReader(body)); code != http.StatusOK {
					t.Errorf("in its turn: %d: %s", code, answer)
				}
			})
		}
		synctest.Wait() // all are reading
		for body, size := range map[string]string{small: "small", large: "large"} {
			for path, want := range map[string]int{pathPods: http.StatusTooManyRequests, pathPodHold: http.StatusOK} {
				if code, answer := post(h, http.MethodPost, path, "application/json", strings.NewReader(body)); code != want {
					t.Errorf("one more %s at %s: %d: %s", size, path, code, answer)
				}
			}
		}
		all.Wait()
	})
}

// claims is a Reader that counts the claims that it reads, of which the last by name is terminating.
type claims struct {
	cluster
	read *int
	last string
}

func (c claims) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, bool, error) {
	*c.read++
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if name == c.last {
		claim.DeletionTimestamp = &metav1.Time{}
	}
	return claim, true, nil
}

func TestClaimsOfAPodAreReadUpToABound(t *testing.T) {
	for count, denied := range map[int]bool{maxClaims: true, maxClaims + 1: false} {
		p := pod()
		p.Spec.Volumes = nil
		for i := range count {
			name := fmt.Sprintf("claim-%04d", i)
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
		read := 0
		reader := claims{read: &read, last: fmt.Sprintf("claim-%04d", count-1)}
		got := send(t, Handler(nil, reader), pathPods, request("pods", "", p))
		if read != maxClaims || got.Allowed == denied || denied == (len(got.Warnings) > 0) {
			t.Errorf("%d claims: %d are read: %+v", count, read, got)
		}
	}
}

// pipes is a listener with connections in memory, which end with the fake time of a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Any pod can send reviews, and an answer outlives the turn of its request.
func TestAnswerKeepsLittleOfItsRequest(t *testing.T) {
	long := strings.Repeat("<", 1<<10)
	pod := reviewOf(`{"metadata":{"name":"` + long + `"},"spec":{"nodeName":"a","volumes":[` +
		`{"persistentVolumeClaim":{"claimName":"` + long + `"}},{"name":"` + long + `","ephemeral":{}}]}}`)
	for what, c := range map[string]struct {
		path, body string
		code       int
	}{
		"a UID":       {pathPVs, strings.Replace(reviewOf("{}"), `"uid":"review"`, `"uid":"`+long+`"`, 1), 400},
		"a name":      {pathPVs, strings.Replace(reviewOf("{}"), `"uid"`, `"name":"`+long+`","uid"`, 1), 400},
		"a namespace": {pathPVs, strings.Replace(reviewOf("{}"), `"uid"`, `"namespace":"`+long+`","uid"`, 1), 400},
		"an error":    {pathPodHold, reviewOf(`{"metadata":{"creationTimestamp":"` + long + `"}}`), 400},
		"a pod to bind": {pathPods, strings.Replace(reviewOf(`{"metadata":{"name":"`+long+`"}}`), `"pods"`, `"bindings"`, 1),
			400},
		"names of a claim": {pathPods, pod, 200},
	} {
		read := 0
		code, answer := post(Handler(func() Drivers { return known }, claims{read: &read}), http.MethodPost, c.path,
			"application/json", strings.NewReader(c.body))
		if code != c.code || len(answer) > maxError+1 || read > 0 {
			t.Errorf("%s: %d with %d bytes, %d reads", what, code, len(answer), read)
		}
	}
}

// Connections that send no body keep no other small request from its turn.
func TestSlowBodiesDelayNoSmallReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := NewServer(Handler(nil, cluster{}), nil)
		listener, ended := make(pipes), make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		const head = "POST %s HTTP/1.1\r\nHost: guard\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
		var open []net.Conn
		connect := func(sent string) net.Conn {
			client, accepted := net.Pipe()
			listener <- accepted
			go func() { _, _ = io.WriteString(client, sent) }()
			open = append(open, client)
			return client
		}
		for range smallReviews {
			connect(fmt.Sprintf(head, pathPodHold, smallBody))
		}
		synctest.Wait()
		began, body := time.Now(), reviewOf("{}")
		response, err := http.ReadResponse(bufio.NewReader(connect(fmt.Sprintf(head, pathPodHold, len(body))+body)), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || time.Since(began) > 0 {
			t.Errorf("%d after %v", response.StatusCode, time.Since(began))
		}
		for _, one := range open {
			_ = one.Close()
		}
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func TestBodyIsAwaitedForAShortTime(t *testing.T) {
	body := reviewOf(`{"spec":{"nodeName":"a","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}`)
	for what, c := range map[string]struct {
		sent  string
		code  int
		after time.Duration
	}{
		"a whole one, although the answer takes longer": {body, http.StatusOK, 2 * bodyTimeout},
		"a part": {body[:9], http.StatusInternalServerError, bodyTimeout},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := NewServer(Handler(nil, slow{takes: 2 * bodyTimeout}), nil)
				listener, ended := make(pipes), make(chan error, 1)
				go func() { ended <- server.Serve(listener) }()
				client, accepted := net.Pipe()
				listener <- accepted
				began := time.Now()
				go func() {
					_, _ = fmt.Fprintf(client, "POST %s HTTP/1.1\r\nHost: guard\r\nContent-Type: application/json\r\n"+
						"Content-Length: %d\r\n\r\n%s", pathPods, len(body), c.sent)
				}()
				response, err := http.ReadResponse(bufio.NewReader(client), nil)
				if err != nil {
					t.Fatal(err)
				}
				answer, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != c.code || time.Since(began) != c.after || strings.Contains(string(answer), "warnings") {
					t.Errorf("after %v: %d: %s", time.Since(began), response.StatusCode, answer)
				}
				_ = client.Close()
				_ = server.Close()
				if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}
