// Package proxy stands between one client and an API server, and plays a network and a server in trouble: late, lost
// and refused answers, watches that lag, break off and must begin anew, silence, and no connection at all. It never
// alters the server's own work, and never shows the client an impossible state: a single read is as new as the moment
// it was sent, and a watch never goes back.
//
// The client speaks plain HTTP/1.1 to the proxy, so that each request has its own connection, which can be broken
// without harm to others. Towards the API server the proxy has the identity that it was given. It requests lists and
// watches in JSON, which client-go accepts as well as protobuf, because it must distinguish the events of a watch.
//
// A [Rule] selects requests and their effect. Methods of [Proxy] play lasting states (a watch on hold, a partition).
package proxy
