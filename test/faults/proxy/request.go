package proxy

import (
	"net/http"
	"strings"
	"time"
)

// Request is a client's request and its outcome.
type Request struct {
	// Verb is the API's: get, list, watch, create, update, patch, delete. Verb and Resource are empty for URLs
	// that are no resources.
	Verb string
	// Resource is the plural, with the subresource: persistentvolumes/status.
	Resource, Namespace, Name string
	// Received is when the proxy had the whole request.
	Received time.Time
	// Rule is the label of the rule that decided, empty for none.
	Rule string
	// Code is the status that the server answered, 0 where it was not asked or has not answered.
	Code int

	// version is the resourceVersion that the client allows for a list, or with which a watch begins. initial means that
	// the watch begins with all objects.
	version string
	initial bool
}

// Write reports whether the request changes something.
func (q Request) Write() bool {
	return q.Verb == "create" || q.Verb == "update" || q.Verb == "patch" || q.Verb == "delete"
}

// String is a line of a history.
func (q Request) String() string {
	line := q.Verb + " " + q.Resource + " " + strings.TrimPrefix(q.Namespace+"/"+q.Name, "/")
	if q.Rule != "" {
		line += " [" + q.Rule + "]"
	}
	return line
}

// parse reads the request's verb and target from its method and URL.
func parse(r *http.Request) Request {
	q := Request{Received: time.Now()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return q
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		q.Namespace, parts = parts[1], parts[2:]
	}
	q.Resource = parts[0]
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Resource += "/" + parts[2]
	}
	query := r.URL.Query()
	q.version = query.Get("resourceVersion")
	q.initial = query.Get("sendInitialEvents") == "true"
	switch r.Method {
	case http.MethodPost:
		q.Verb = "create"
	case http.MethodPut:
		q.Verb = "update"
	case http.MethodPatch:
		q.Verb = "patch"
	case http.MethodDelete:
		q.Verb = "delete"
	default:
		q.Verb = readVerb(q.Name, query.Get("watch"))
	}
	return q
}

func readVerb(name, watch string) string {
	switch {
	case watch == "true" || watch == "1":
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}
