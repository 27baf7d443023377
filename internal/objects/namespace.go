package objects

// Namespace is the record of a namespace in a watch cache, with the mode that its labels ask for.
type Namespace[M any] struct {
	Name string
	Mode M
}
