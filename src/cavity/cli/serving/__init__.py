"""The prediction server of `cavity serve`. It needs the extra "serve".

`requests` reads rows and `answers` formats predictions; `service` receives, parses, predicts in blocks and answers. `trial`
describes the model for the page in `static`, `application` has the routes, and `server` starts it all.
"""
