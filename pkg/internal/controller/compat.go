package controller

// The names that packages which are not moved to Controller yet still use.
type (
	Next                  = Result
	Loop[K comparable]    = Queue[K]
	Handler[K comparable] = Reconciler[K]
)

// New is NewQueue without a Controller.
func New[K comparable](cfg Config, handle Handler[K]) (*Queue[K], error) {
	return NewQueue(nil, cfg, handle)
}
