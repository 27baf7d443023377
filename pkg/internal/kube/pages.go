package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EachPage reads a list by the page until it is whole. read asks for the one page that its options name, and
// returns the token of the next, empty after the last; each call may take as long as timeout. The first error ends it.
func EachPage(ctx context.Context, options metav1.ListOptions, timeout time.Duration,
	read func(context.Context, metav1.ListOptions) (next string, err error)) error {
	for {
		next, err := within(ctx, timeout, options, read)
		if err != nil || next == "" {
			return err
		}
		options.Continue = next
	}
}

func within(ctx context.Context, timeout time.Duration, options metav1.ListOptions,
	read func(context.Context, metav1.ListOptions) (string, error)) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return read(ctx, options)
}
