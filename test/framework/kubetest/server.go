package kubetest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Server is an API server with prepared answers, which records its requests.
type Server struct {
	// Answers are JSON objects by "METHOD end-of-path", or by the end of the path for every method. A request without an
	// answer is refused.
	Answers map[string]string

	url      string
	mu       sync.Mutex
	requests []string
}

// NewServer returns a Server, which runs until the test ends.
func NewServer(t *testing.T, answers map[string]string) *Server {
	t.Helper()
	s := &Server{Answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer, found := s.answer(r)
	switch {
	case !found:
		w.WriteHeader(http.StatusForbidden)
		answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	case strings.Contains(answer, `"reason":"NotFound"`):
		w.WriteHeader(http.StatusNotFound)
	case strings.Contains(answer, `"reason":"AlreadyExists"`):
		w.WriteHeader(http.StatusConflict)
	}
	_, _ = io.WriteString(w, answer)
}

// answer returns the answer whose name matches the request. The longest matching name wins.
func (s *Server) answer(r *http.Request) (answer string, found bool) {
	longest := ""
	for of, one := range s.Answers {
		method, end, forMethod := strings.Cut(of, " ")
		if !forMethod {
			method, end = r.Method, of
		}
		if method == r.Method && strings.HasSuffix(r.URL.Path, end) && len(of) >= len(longest) {
			longest, answer, found = of, one, true
		}
	}
	return answer, found
}

// Config returns the configuration of a client.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.url} }

// Last returns the last request as "METHOD URI body", or "".
func (s *Server) Last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return ""
	}
	return s.requests[len(s.requests)-1]
}

// Has reports whether the last request contains each of these words.
func (s *Server) Has(words ...string) bool {
	for _, word := range words {
		if !strings.Contains(s.Last(), word) {
			return false
		}
	}
	return true
}

// Absence calls check with an API server that has no objects, so that reads find none, and with a proxy that does not
// find its API server, so that they fail.
func Absence(t *testing.T, check func(config *rest.Config, fails bool)) {
	t.Helper()
	for fails, answer := range map[bool]http.HandlerFunc{
		true: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) },
		false: func(w http.ResponseWriter, r *http.Request) {
			path, group := strings.Split(r.URL.Path, "/"), ""
			if path[1] == "apis" {
				group = path[2]
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
				Details: &metav1.StatusDetails{Group: group, Kind: path[len(path)-2], Name: path[len(path)-1]}})
		},
	} {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		check(&rest.Config{Host: server.URL}, fails)
	}
}
