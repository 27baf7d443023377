package fill

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// etcd writes to the control plane's etcd directly: two calls of its KV service, in its wire format, so that none of
// etcd's packages is compiled in. The API server sees the changes by its watch, as if another API server had made them.
type etcd struct{ conn *grpc.ClientConn }

func dialEtcd(address string) (etcd, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{})))
	if err != nil {
		return etcd{}, fmt.Errorf("connect to etcd: %w", err)
	}
	return etcd{conn}, nil
}

// put stores a value (etcdserverpb.PutRequest: 1 key, 2 value).
func (e etcd) put(ctx context.Context, key string, value []byte) error {
	return e.call(ctx, "Put", []byte(key), value)
}

// deleteRange removes all keys from one on and before another (DeleteRangeRequest: 1 key, 2 range_end).
func (e etcd) deleteRange(ctx context.Context, from, before string) error {
	return e.call(ctx, "DeleteRange", []byte(from), []byte(before))
}

func (e etcd) call(ctx context.Context, method string, first, second []byte) error {
	var request []byte
	for i, field := range [][]byte{first, second} {
		request = protowire.AppendTag(request, protowire.Number(i+1), protowire.BytesType)
		request = protowire.AppendBytes(request, field)
	}
	var answer []byte
	if err := e.conn.Invoke(ctx, "/etcdserverpb.KV/"+method, &request, &answer); err != nil {
		return fmt.Errorf("%s in etcd %q: %w", method, first, err)
	}
	return nil
}

func (e etcd) close() error { return e.conn.Close() }

// plain is the codec of messages that are encoded already.
type plain struct{}

func (plain) Name() string { return "plain" }

func (plain) Marshal(v any) ([]byte, error) {
	message, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("encode %T: it is no message", v)
	}
	return *message, nil
}

func (plain) Unmarshal(data []byte, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("decode into %T: it is no message", v)
	}
	*message = append((*message)[:0], data...)
	return nil
}

// Object is an object of type T that can be copied.
type Object[T any] interface {
	runtime.Object
	DeepCopy() T
	SetUID(types.UID)
	SetResourceVersion(string)
}

// Copies writes n copies of an object that went through the API server, so that they are as large as real ones. change
// makes copy i another object, and returns its key in etcd: /registry, the resource, the namespace if any, and the
// name. The object must have its kind and the version in which it is stored.
func Copies[T Object[T]](ctx context.Context, c *Cluster, n int, template T,
	change func(i int, o T) (key string)) error {
	err := each(ctx, n, func(ctx context.Context, i int) error {
		own := template.DeepCopy()
		own.SetUID(UIDOf(i))
		own.SetResourceVersion("")
		return c.putObject(ctx, change(i, own), own)
	})
	if err != nil {
		return fmt.Errorf("fill the cluster with %d copies: %w", n, err)
	}
	return nil
}

// UIDOf returns the UID of copy i. Copies of different objects share it.
func UIDOf(i int) types.UID { return types.UID(fmt.Sprintf("%08x-5b1c-4e1f-9d5e-7a3f00c0ffee", i)) }
