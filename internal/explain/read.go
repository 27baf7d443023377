package explain

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Read is the result of one read of the API server. The zero value means that no read was made.
type Read[T any] struct {
	Made  bool
	Value T
	// Err is the reason for a failed read; Value is then meaningless.
	Err error
}

// OK reports whether the read succeeded, so that Value is the API server's answer.
func (r Read[T]) OK() bool { return r.Made && r.Err == nil }

func Found[T any](value T) Read[T] { return Read[T]{Made: true, Value: value} }

func Failed[T any](err error) Read[T] { return Read[T]{Made: true, Err: err} }

// ReadOf converts the answer to a request.
func ReadOf[T any](value T, err error) Read[T] { return Read[T]{Made: true, Value: value, Err: err} }

// Optional converts the answer to a GET of an object that may not exist; Value is nil if it does not.
func Optional[T any](o *T, err error) Read[*T] {
	switch {
	case apierrors.IsNotFound(err):
		return Found[*T](nil)
	case err != nil:
		return Failed[*T](err)
	}
	return Found(o)
}

// ByName returns the objects of a list by their names.
func ByName[O metav1.Object](all Read[[]O]) Read[map[string]O] {
	by := Read[map[string]O]{Made: all.Made, Value: make(map[string]O, len(all.Value)), Err: all.Err}
	for _, o := range all.Value {
		by.Value[o.GetName()] = o
	}
	return by
}

// NoteUnread adds to Unread the object of a failed read, and the question that it leaves open. It adds nothing if the
// read succeeded or was not made.
func NoteUnread[T any](s *Explanation, r Read[T], what, open string) {
	if r.Made && r.Err != nil {
		s.Unread = append(s.Unread, fmt.Sprintf("%s: %v. So it is not known %s.", what, r.Err, open))
	}
}
