"""The prediction server of `cavity serve`. It needs the extra "serve".

`requests` reads rows. `service` receives and parses requests, predicts in blocks and
formats answers. `trial` describes the model for the page in `static`. `application` has
the routes, and `server` starts everything.
"""
