package bench

// filling is what was written into etcd.
type filling struct{}
