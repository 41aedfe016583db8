r"""A job on a Ray cluster: `horovod.ray.ElasticRayExecutor`, with what a shared, changing cluster needs.

    elastic run                    starts the driver again when it ends without the goal
        |
    driver (main, executor)        Horovod's ElasticDriver: who is in the world; asks `watch` once a second
        |        \
        |         slot thread      one a slot (slots): places the actor, holds its link, sees it end
        | Ray        |
        | places     | link: one TCP connection a slot, on which both sides see the other's end at once
        |            |
      actor (actor)--+             one a slot, named after it; starts the agent as its child
        |
      agent -> worker              as under every launcher: what dies below the actor heals in place

Ray places actors and says which nodes there are; whatever must be quick goes over the link, because
Ray takes up to half a minute to declare a node dead.
"""
